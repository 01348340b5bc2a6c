"""The command line: options, their defaults and their help. Every command is one call; no logic here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from difftest import errors, interrupts, lists

# What holds where nothing is named; for a matrix, which is several candidates, some of it is something else.
DEFAULTS: Mapping[str, Any] = {
    "--dtypes": "fp16,bf16,fp32",
    "--widths": "1,3,111,4096",
    "--candidate": "numba",
    "--against": "torch",
    "--eps": 1e-6,
    "--device": "auto",
    "--seed": 0,
    "--cases": 7,
    "--strength": 2,
}
MATRIX_DEFAULTS: Mapping[str, Any] = {"--dtypes": "fp16,bf16", "--widths": "111,4096"}
FAILURES = Path("out/failures")
SHARE_ON_CPU = 2.0**-12  # of the pairs of two operands: 2^20, some seconds each

EXIT_STATUS = """Exit status: 0 conforms, 1 a difference was found, 2 bad usage (or cases that prove nothing), 3 the environment
lacks what was asked for, 70 a fault of the tester itself, 130 interrupted (by Ctrl-C or SIGTERM) before a difference was found,
141 standard output was closed before one was found."""

RESULT_FILE_WHOLE = "Write all that was found: JSON Lines if the file ends in .jsonl, else JSON."
STRENGTH = """How many dimensions of a call occur in every combination of their values: 2 is every pair; 0 leaves these cases
out, and keeps the grid of widths and regimes."""
RESULT_FILE = "Result file, whole after every point: JSON Lines if it ends in .jsonl, else JSON."
IN_PROCESS = "Call candidate and references in the tester's own process, for a debugger: what one of them breaks breaks the run."
CALL_TIMEOUT = "That one call may take; the process that it is in is ended then.  [default: 60, and more for large cases]"
JOURNAL = "Keep what was found in FILE, a line as it is found.  [default: one in out/journals, removed after a whole run]"
RESUME = "Go on with a run that was killed, from its journal: the same options, and nothing again that had ended."
KERNEL_ARGUMENT = "One argument, in order: 3, 0.5, float32:0.5, zeros:float32:64, normal:float32:8x64, FILE.npy."
SAME_VALUE = "What two threads are that write the same value to one place, in no order."
ON = "Run on a Ray cluster in place of processes here (extra `ray`): RAY_ADDRESS's, or one on this machine, or that at ADDRESS."
BATCH_INVARIANT = "Bits of a row that depend on the number of rows in the call are a difference, not a remark."


class Listed(click.Option):
    """An option that takes a list: names apart by commas or blanks, in one word or in several options; one text with commas.

    A word that spells a function in a file that is there is one name, blanks and commas in its path or not.
    """

    def __init__(self, *words: Any, **extra: Any) -> None:
        default = extra.pop("default", "")
        super().__init__(*words, **{**extra, "multiple": True, "default": (default,) if default else ()})

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """The text; empty where the option was not given, or where nothing was given to it."""
        words = super().process_value(ctx, value)
        if any(not word.strip() for word in words):
            return ""
        return ",".join(name for word in words for part in lists.split(word) for name in self._names(part))

    @staticmethod
    def _names(part: str) -> list[str]:
        return [part.strip()] if lists.is_function_in_a_file(part) else part.split()


class GivenValues(click.Command):
    """A command that takes no empty text for an option, left out and given as "" must not be the same; and no NUL."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the words."""
        if broken := [word for word in args if "\0" in word]:
            raise errors.UsageError(f"{broken[0]!r}: a NUL is in no name")
        rest = super().parse_args(ctx, args)
        for option in self.params:
            given = option.name and ctx.get_parameter_source(option.name) is not ParameterSource.DEFAULT
            if given and ctx.params[option.name] == "" and isinstance(option, click.Option):
                raise errors.UsageError(f"{option.opts[0]}: '' names nothing")
        return rest


class OneLineErrors(click.Group):
    """A group whose errors are one line on standard error, and whose commands return their exit status."""

    command_class = GivenValues

    def main(self, *args: Any, **extra: Any) -> Any:  # type: ignore[override]
        """Runs the command and exits with its status."""
        with interrupts.lasting_output() as failure, interrupts.on_sigterm_too():
            status = self._status(*args, **extra)
            lost = failure()
            if isinstance(lost, BrokenPipeError):
                status = status or errors.UNREAD
            elif lost:
                status = self._failed(f"standard output: {lost.strerror}", errors.LACKING)
        sys.exit(status)

    def _status(self, *args: Any, **extra: Any) -> int:
        """Runs the command; its exit status, or its error's."""
        try:
            return super().main(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            return errors.BAD_USAGE
        except click.ClickException as error:
            return self._failed(" ".join(error.format_message().split()), error.exit_code)
        except click.Abort:
            return self._failed("interrupted", errors.INTERRUPTED)
        except Exception as error:
            known = error if isinstance(error, errors.TesterError) else errors.known(error)
            if known is None:
                from difftest import faults

                return self._failed(faults.report(error), errors.FAULT)
            return self._failed(str(known), known.status)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command named. Ctrl-C outside what keeps its findings ends it in one line; click would begin an empty one, and
        takes the end of any file for Ctrl-C, too."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.Abort from None
        except EOFError as error:
            raise RuntimeError(f"EOFError: {error}") from error

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Adds the commands that there are to the error for one that there isn't."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise errors.one_of("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    @staticmethod
    def _failed(message: str, status: int) -> int:
        click.echo(f"error: {message}", err=True)
        return status


def listed(*words: str, **extra: Any) -> Callable:
    """Declares an option that takes a list."""
    return click.option(*words, cls=Listed, **extra)


def usual(what: str, option: str) -> str:
    """The help of an option whose default is another for a matrix."""
    return f"{what}  [default: {DEFAULTS[option]}; matrix: {MATRIX_DEFAULTS[option]}]"


def file_options(command: Callable) -> Callable:
    """The options that say where to leave what was found."""
    for name, kind, what in (
        ("--failures", "DIR", "Folder for the worst case that differs, as a file that `replay` takes."),
        ("--plots", "DIR", "Write ULP histograms as SVG files; a matrix, errors (needs matplotlib)."),
        ("--junit", "FILE", "Write a JUnit XML file."),
        ("--html", "FILE", "Write a self-contained HTML page (needs jinja2)."),
        ("--emit-pytest", "FILE", "Shrink a failure, and write a test of its own that fails as long as it is there."),
        ("--json", "FILE", "Write all that was found as JSON, also when interrupted; a matrix as JSON Lines if .jsonl."),
    ):
        default = FAILURES if name == "--failures" else None
        option = click.option(
            name, type=click.Path(path_type=Path), metavar=kind, help=what, default=default, show_default=bool(default)
        )
        command = option(command)
    return command


def isolation_options(command: Callable) -> Callable:
    """The options that say where other people's code runs, and for how long."""
    command = click.option("--in-process", is_flag=True, help=IN_PROCESS)(command)
    return click.option("--call-timeout", type=float, metavar="SECONDS", help=CALL_TIMEOUT)(command)


@click.group(cls=OneLineErrors, epilog=EXIT_STATUS, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Compares fused norm and activation kernels with other implementations, in ULP."""


@main.command(epilog=EXIT_STATUS)
@listed("--ops", metavar="NAMES", help="Operators, comma-separated.  [default: all; a file's function's name]")
@listed("--dtypes", metavar="NAMES", help=usual("Storage dtypes.", "--dtypes"))
@listed("--widths", metavar="NUMBERS", help=usual("Of an output row.", "--widths"))
@listed("--rows", metavar="NUMBERS", help="Numbers of rows.  [default: by width, and odd layouts beside]")
@listed("--regimes", "regime_names", metavar="NAMES", help="Families of input values.  [default: all]")
@listed(
    "--candidate",
    default=DEFAULTS["--candidate"],
    metavar="NAME|FILE.py:FUNCTION",
    show_default=True,
    help="What is under test. Several, comma-separated, or `all`: a matrix of every pair.",
)
@listed(
    "--against",
    metavar="NAMES",
    help=f"References, comma-separated, or `all`.  [default: {DEFAULTS['--against']}; matrix: the candidates themselves]",
)
@listed(
    "--contract",
    metavar="CODES",
    help="Where to round: one code an operator family, or the library whose contract it is.  [default: R0W0,W0,S0]",
)
@click.option("--eps", default=DEFAULTS["--eps"], show_default=True, help="Inside the root.")
@click.option(
    "--device", default=DEFAULTS["--device"], metavar="auto|cpu|cuda[:N]", show_default=True, help="Where the candidate runs."
)
@click.option("--seed", default=DEFAULTS["--seed"], show_default=True, help="The same seed gives the same cases.")
@click.option("--cases", default=DEFAULTS["--cases"], metavar="N", show_default=True, help="Random cases beside the others.")
@click.option("--strength", default=DEFAULTS["--strength"], metavar="0-3", show_default=True, help=STRENGTH)
@click.option(
    "--time-budget",
    type=float,
    metavar="SECONDS",
    help="No new case starts after it; what is left of it is searched.",
)
@click.option("--workers", type=int, metavar="N", help="Processes beside this one.  [default: by candidate and cores]")
@click.option("--on", default="", metavar="ray|ray://ADDRESS", help=ON)
@isolation_options
@click.option("--batch-invariant", is_flag=True, help=BATCH_INVARIANT)
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Write a matrix as a Markdown page.")
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Real activations instead of drawn values: a .safetensors or .npz file with the operators' tensors by name.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An earlier run's JSON: a figure that is worse than there is a difference too (mismatches, ULP, rate, rstd error).",
)
@click.option("--journal", type=click.Path(path_type=Path), metavar="FILE", help=JOURNAL)
@click.option("--resume", type=click.Path(path_type=Path), metavar="FILE", help=RESUME)
@file_options
def difftest(**options: Any) -> int:
    """Compare a candidate with references over widths, dtypes, regimes, layouts and random shapes.

    With several candidates, or `all`: a matrix. Every implementation is called on the same inputs, each in a process of
    its own; shown are each pair's distances, each one's contract as identified, and its errors against the truth.
    """
    from difftest.run import pool

    if options["candidate"] == "numba" and options["device"] in ("auto", "cpu") and options["workers"] is None:
        pool.prepare()
    with interrupts.leaving_at_once(), pool.without_threads():
        from difftest.commands.difftest import difftest
        from difftest.commands.files import Files

    return difftest(files=_files(Files, options), defaults=DEFAULTS, matrix_defaults=MATRIX_DEFAULTS, **options)


@main.command(epilog=EXIT_STATUS)
@click.argument("case")
@click.option("--candidate", default="", metavar="NAME|FILE.py:FUNCTION", help="Another candidate than the case's own.")
@listed("--against", metavar="NAMES", help="Other references than the case's own.")
@click.option("--device", default="", metavar="auto|cpu|cuda[:N]", help="Another device than the case's own.")
@isolation_options
@click.option("--batch-invariant", is_flag=True, help=BATCH_INVARIANT)
@file_options
def replay(case: str, **options: Any) -> int:
    """Run one saved CASE again: a case file, or FILE.json#INDEX of a run's JSON."""
    from difftest.run import pool

    with interrupts.leaving_at_once(), pool.without_threads():
        from difftest.commands.files import Files
        from difftest.commands.replay import replay

    return replay(case, files=_files(Files, options), defaults=DEFAULTS, **options)


@main.command(epilog="Exit status: 0 a contract was found, 1 none fits, 2 bad usage, 3 the environment lacks what was asked for.")
@click.option("--op", default="", metavar="NAME", help="The operator.  [default: a file's function's name]")
@click.option(
    "--candidate",
    default=DEFAULTS["--candidate"],
    metavar="NAME|FILE.py:FUNCTION",
    show_default=True,
    help="What is asked about.",
)
@click.option("--contract", default="", metavar="CODE", help="The contract to ask the candidate for, if it has several.")
@click.option("--dtype", default="bf16", metavar="NAME", show_default=True, help="Storage dtype.")
@listed("--widths", default="3,111,4096", metavar="NUMBERS", show_default=True, help="Widths of an output row.")
@click.option(
    "--device", default=DEFAULTS["--device"], metavar="auto|cpu|cuda[:N]", show_default=True, help="Where the candidate runs."
)
@click.option("--seed", default=DEFAULTS["--seed"], show_default=True, help="The same seed gives the same rows.")
@click.option(
    "--order",
    "order_of_sum",
    type=click.Choice(["with", "only", "no"]),
    default="with",
    show_default=True,
    help="In which order a norm adds its squares: with the contract, nothing else, or left out.",
)
@click.option("--json", type=click.Path(path_type=Path), metavar="FILE", help="Write what was found as JSON.")
def identify(**options: Any) -> int:
    """Say which rounding contract an implementation follows, with which eps and weight bias; the last line names it."""
    with interrupts.leaving_at_once():
        from difftest.identify.command import identify

    return identify(**options)


@main.command(
    epilog="Exit status: 0 every wrong kernel that was run was found and no honest one called wrong, 1 otherwise, 2 bad usage or "
    "no time for any of them, 3 none of them can be run here, 130 interrupted before anything was wrong."
)
@listed("--corpus", default="field,honest", metavar="NAMES", show_default=True, help="field, honest, machine, or all.")
@listed("--ops", metavar="NAMES", help="Operators, comma-separated.  [default: all]")
@listed("--only", metavar="NAMES", help="These kernels alone, by name.")
@listed("--seeds", default="0", metavar="NUMBERS", show_default=True, help="Each a run of its own.")
@click.option(
    "--time-budget",
    type=float,
    metavar="SECONDS",
    help="Start no new kernel after it; what runs 2 s later is ended, but with --workers 0.",
)
@click.option("--workers", type=int, metavar="N", help="Processes beside this one.  [default: one a core, at most 8]")
@click.option("--on", default="", metavar="ray|ray://ADDRESS", help=ON)
@click.option("--journal", type=click.Path(path_type=Path), metavar="FILE", help=JOURNAL)
@click.option("--resume", type=click.Path(path_type=Path), metavar="FILE", help=RESUME)
@click.option("--json", type=click.Path(path_type=Path), metavar="FILE", help=RESULT_FILE_WHOLE)
def mutants(**options: Any) -> int:
    """Measure what the tester catches: kernels wrong in one way each, and honest ones.

    Each is run on the cases of the default `difftest` run of its operator. Shown are which check found which kind of fault, who
    was missed, who was called wrong though honest, and what other projects' tolerances let through on the same cases.
    """
    with interrupts.leaving_at_once():
        from difftest.mutants.command import mutants

    return mutants(defaults=DEFAULTS, **options)


@main.command(epilog=EXIT_STATUS)
@listed("--ops", metavar="NAMES", help="Operators.  [default: fused_add_rmsnorm,silu_and_mul,rmsnorm]")
@listed("--shapes", metavar="RxW,…", help="Output rows x width.  [default: docs/speed.md's, by operator]")
@listed("--dtypes", metavar="NAMES", help="Storage dtypes.  [default: bf16, and a few points of the others]")
@listed("--peers", metavar="NAMES", help="Providers beside ours.  [default: all that have the operator]")
@click.option("--device", default=DEFAULTS["--device"], metavar="auto|cuda[:N]", show_default=True, help="The GPU.")
@click.option("--time-budget", type=float, metavar="SECONDS", help="Start no new point after this time.")
@click.option("--json", type=click.Path(path_type=Path), metavar="FILE", help=RESULT_FILE)
@click.option("--plots", type=click.Path(path_type=Path), metavar="DIR", help="Write GB/s as SVG files (needs matplotlib).")
@click.option(
    "--summary",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measure nothing: report what a result file holds; several are put together.",
)
@click.option("--ladder", is_flag=True, help="Measure every step from the textbook kernel to the fast ones.")
@click.option("--markdown", is_flag=True, help="Print the tables as Markdown.")
def bench(**options: Any) -> int:
    """Measure device and host time beside other implementations."""
    with interrupts.leaving_at_once():
        from difftest.bench.command import bench

    return bench(**options)


@main.command(epilog=EXIT_STATUS + " 70: an output planted by --plants was missed.")
@listed("--ops", metavar="NAMES", help="Of two operands.  [default: all; on a CPU the activations; a file's function's name]")
@listed("--dtypes", default="fp16,bf16", metavar="NAMES", show_default=True, help="Storage dtypes of 16 bits.")
@listed(
    "--candidate",
    default=DEFAULTS["--candidate"],
    metavar="NAME|FILE.py:FUNCTION",
    show_default=True,
    help="What is under test. Several, comma-separated: one after another.",
)
@listed("--contract", metavar="CODES", help="Codes, or all.  [default: what the candidate claims]")
@click.option(
    "--device", default=DEFAULTS["--device"], metavar="auto|cpu|cuda[:N]", show_default=True, help="Where all of it runs."
)
@click.option("--share", type=float, metavar="NUMBER", help=f"Of the pairs, at least.  [default: 1; on a CPU {SHARE_ON_CPU:.2g}]")
@click.option("--seed", default=DEFAULTS["--seed"], show_default=True, help="Of a share's patterns, and of what is planted.")
@click.option("--plants", default=0, metavar="N", show_default=True, help="Passes more, each with one wrong output in it.")
@click.option("--time-budget", type=float, metavar="SECONDS", help="Begin no turn of slices after this time.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep in FILE which slices are done and what was found; where it is there, go on from it.",
)
@click.option("--json", type=click.Path(path_type=Path), metavar="FILE", help="Write what was found as JSON, or JSON Lines.")
def exhaustive(**options: Any) -> int:
    """Judge every pair of 16-bit operands: gate and up, or input and residual of rows of one element.

    Inputs are made and outputs judged on the device: all 2^32 pairs of an operator and dtype take a fraction of a second on a
    GPU. On a CPU a share of every stratum of pairs is judged.
    """
    with interrupts.leaving_at_once():
        from difftest.exhaustive.command import exhaustive

    return exhaustive(share_on_cpu=SHARE_ON_CPU, **options)


@main.command(epilog=EXIT_STATUS)
@listed("--op", default="fused_add_rmsnorm,rmsnorm,silu_and_mul", metavar="NAMES", show_default=True, help="Operators.")
@click.option("--rows", default=128, show_default=True, help="Output rows.")
@click.option("--width", default=4096, show_default=True, help="Width of an output row.")
@click.option("--dtype", default="bf16", metavar="NAME", show_default=True, help="Storage dtype.")
@click.option("--json", type=click.Path(path_type=Path), metavar="FILE", help="Write the ledger as JSON.")
def ledger(**options: Any) -> int:
    """Count the bytes an operator moves, fused and split, with and without its contract."""
    with interrupts.leaving_at_once():
        from difftest.commands.ledger import show

    return show(**options)


@main.command(
    epilog="Exit status: 0 every page is what it should be, 1 --check found one that is not, 2 marks that name no block."
)
@click.option("--check", is_flag=True, help="Write nothing; name the pages that are not what the data says.")
def docs(check: bool) -> int:
    """Write the generated pages of the repository, and the marked blocks of README.md and docs/, from code and result files."""
    with interrupts.leaving_at_once():
        from difftest.pages.command import docs

    return docs(check=check)


@main.command(epilog=EXIT_STATUS)
def doctor() -> int:
    """Show what is installed and usable here."""
    with interrupts.leaving_at_once():
        from difftest.commands.doctor import doctor

    return doctor()


@main.command(epilog="Exit status: 0 nothing was found, 1 a fault of the kernel was, 2 bad usage, 130 interrupted.")
@click.argument("what", metavar="FILE.py[:KERNEL]")
@click.option("--grid", metavar="N[,N[,N]]", help="Blocks along x, y, z.")
@click.option("--block", metavar="N[,N[,N]]", help="Threads of a block along x, y, z.")
@click.option(
    "--arg",
    "specs",
    multiple=True,
    metavar="SPEC",
    help=KERNEL_ARGUMENT,
)
@click.option("--args", "maker", metavar="FUNCTION", help="Instead: a function of the file that returns the arguments.")
@click.option("--check", default="full", show_default=True, type=click.Choice(["fast", "full"]), help="What is looked for.")
@click.option("--schedules", default=1, show_default=True, help="How many: threads in order, then orders that are drawn.")
@click.option("--seed", default=0, show_default=True, help="Of the first schedule that is drawn.")
@click.option("--shared", default=0, show_default=True, metavar="BYTES", help="Dynamic shared memory of a block.")
@click.option("--same-value", default="note", show_default=True, type=click.Choice(["note", "error"]), help=SAME_VALUE)
def emulate(**options: Any) -> int:
    """Run a numba.cuda kernel, or a whole program, without a GPU, and say what is wrong with it: races, unwritten shared memory,
    barriers that not all threads reach, indices outside arrays."""
    from difftest.commands.emulate import emulate

    return emulate(**options)


def _files(make: Callable, options: dict[str, Any]) -> Any:
    """The file options of a command, taken out of its options."""
    names = ("json", "html", "junit", "plots", "failures", "markdown", "emit_pytest")
    given = {name: options.pop(name) for name in names if name in options}
    return make(**given, failures_named=given["failures"] != FAILURES)


if __name__ == "__main__":
    main()

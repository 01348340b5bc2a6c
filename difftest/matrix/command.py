"""The matrix form of `difftest`: options in, an exit status out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from difftest import errors, lists, options
from difftest.cases import regimes
from difftest.errors import UsageError
from difftest.matrix import analyse, file, page, plots, request, run, tables
from difftest.matrix.observe import Task, tasks
from difftest.options import Given
from difftest.providers.resolve import resolve
from difftest.report import terminal
from difftest.report.files import need, write_each, write_text
from difftest.run import pool
from difftest.run.environment import environment, one_line
from difftest.wording import counted
from reference import providers
from reference.formats import FORMATS
from reference.operators import OPERATORS

# Processes at a time. On a GPU most of their time is compiling, on the host; on a CPU each fills a core.
MOST_JOBS = 8


def is_matrix(candidate: str) -> bool:
    """Whether a `--candidate` means several implementations."""
    return candidate == "all" or len(lists.split(candidate)) > 1


def names(option: str, text: str) -> list[str]:
    """Names out of a comma-separated list, each of which means something; `all` is every provider there is."""
    found = list(dict.fromkeys(name for word in options.words(option, text) for name in _meant(word)))
    for name in found:
        resolve(name, option)
    return found


def _meant(word: str) -> list[str]:
    if word != "all":
        return [word]
    return [name for name in providers.names() if name not in providers.broken_entry_points()]


def matrix(given: Given, files: Any) -> int:
    """Compares every candidate with every reference, identifies all of them, and reports. Returns the exit status.

    Without references the candidates are compared with each other.
    0; 1 where one fails or does not follow the contract that it claims; 2 and 3 as everywhere.
    """
    asked = _request(given)
    if files.plots:
        need("--plots", "matplotlib")
    files.check()
    options.memory_for(max(case.rows * case.width for case in asked.cases))
    screen = terminal.console()
    calls = len(tasks(asked.cases, asked.widths))
    screen.print(
        f"{counted(len(asked.names), 'implementation')}, {counted(len(asked.pairs), 'pair')}, {counted(calls, 'call')} of each",
        markup=False,
    )
    screen.print(one_line(environment(asked.device)), style="dim", soft_wrap=True)
    with run.scratch() as folder, _progress(calls * len(asked.names)) as on_answer:
        observed = run.run(asked, Path(folder), on_answer)
        document = analyse.document(asked, observed, {name: resolve(name) for name in asked.names})
    tables.show(screen, document)
    status = _close(screen, document)
    write_each(
        (files.json, lambda path: file.write(path, document)),
        (files.markdown, lambda path: write_text(path, page.page(document, str(files.json or "RESULT.json")))),
        (files.plots, lambda folder: plots.write(folder, document)),
    )
    return status


def _request(given: Given) -> request.Request:
    """The matrix asked for; UsageError where that is none."""
    widths, where = options.widths(given.widths), options.device(given.device)
    given.check_numbers()
    cases = request.cases(
        options.names("--ops", given.ops, OPERATORS) if given.ops else list(OPERATORS),
        options.names("--dtypes", given.dtypes, FORMATS),
        widths,
        options.whole_numbers("--rows", given.rows, 1) if given.rows else None,
        options.names("--regimes", given.regime_names, regimes.REGIMES) if given.regime_names else None,
        given.seed,
        where,
    )
    if not cases:
        raise UsageError("--regimes: none of them applies to the operators asked for, so there is no case to run")
    candidates = names("--candidate", given.candidate)
    against = names("--against", given.against) if given.against else candidates
    jobs = _jobs(where) if given.workers is None else given.workers
    asked = request.Request(candidates, against, cases, widths, where, given.seed, jobs, given.time_budget)
    if not asked.pairs:
        raise UsageError("--candidate: a matrix needs two different implementations")
    return asked


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str, Task], None]]:
    """A progress bar on standard error while it is a terminal."""
    with Progress(console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal) as bar:
        task = bar.add_task("starting", total=total)
        yield lambda name, done: bar.update(task, advance=1, description=f"{name}: {done}")


def _jobs(device: str) -> int:
    cores = pool.cores()
    return max(1, min(MOST_JOBS, cores // 2 if device.startswith("cuda") else cores))


def _close(screen: Any, document: dict[str, Any]) -> int:
    """The last line, and the exit status."""
    usable = [name for name, each in document["providers"].items() if not each["unavailable"]]
    compared = sum(pair["output"]["elements"] for group in document["groups"] for pair in group["pairs"])
    verdict = document["verdict"]
    why = {
        "conforms": "every implementation follows the contract that it claims",
        "differs": "an implementation failed, or does not follow the contract that it claims",
        "no evidence": "no contract was found",
    }[verdict]
    style = terminal.STYLE[verdict]
    screen.print(
        f"[{style}]{verdict}[/]: {why}; {counted(len(usable), 'implementation')}, {compared:,} elements compared in pairs, "
        f"{document['seconds']:g} s{_early(document)}",
        soft_wrap=True,
    )
    if verdict == "differs":
        return errors.DIFFERS
    if document["interrupted"]:
        return errors.INTERRUPTED
    if not compared:
        return errors.LACKING
    return errors.CONFORMS if verdict == "conforms" else errors.BAD_USAGE


def _early(document: dict[str, Any]) -> str:
    """What the verdict does not speak of: the calls that a run which ended early never made."""
    left = sum(each["not_run"] for each in document["providers"].values())
    if not left:
        return ""
    return f"; [yellow]{'interrupted' if document['interrupted'] else 'out of time'}: {counted(left, 'call')} not made[/]"

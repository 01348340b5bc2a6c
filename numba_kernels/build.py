"""Build the machine code that the package brings, so that a first call loads it and compiles nothing.

    python -m numba_kernels.build --arch sm_90

Needs no GPU, but libNVVM and nvJitLink (the extra cu13 or cu12). Built are the kernels that tuning chooses, on one GPU of each
architecture, for contiguous rows at addresses of whole 16 bytes and weights of the rows' dtype; a call that takes another kernel
compiles it. The disk cache keeps what an interrupted build had compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .backend import shipped
from .backend.machine_code import machine_code
from .declarations import OPERATORS
from .runtime.ahead import kernels_of
from .runtime.compiling import compile_all
from .tuning import Target

if TYPE_CHECKING:
    from .kernels.config import Kernel, Operation


@dataclass(frozen=True, slots=True)
class Card:
    """The GPU that an architecture's kernels are chosen for."""

    name: str
    cc: tuple[int, int]
    shared_bytes: int  # of a block
    processors: int
    has_run: bool = False  # whether these kernels ever ran on it

    def target(self) -> Target:
        """What its kernels may use."""
        return Target.of(self.cc, self.shared_bytes, self.processors)


CARDS = {
    "sm_80": Card("A100", (8, 0), 163 * 1024, 108),
    "sm_90": Card("H100 SXM, H200", (9, 0), 227 * 1024, 132, has_run=True),
    "sm_100": Card("B200", (10, 0), 227 * 1024, 148),
    "sm_120": Card("RTX PRO 6000", (12, 0), 99 * 1024, 188),
}
DTYPES = ("bf16", "fp16")
CONTRACTS = ("R1W0", "R1W1", "W1", "S1")  # beside each operator's default
# Of heads (128, 256), compressed keys and queries (512, 1536), hidden states. A gated kernel serves many more than these.
WIDTHS = (128, 256, 512, 1024, 1536, 2048, 2560, 2880, 3072, 3584, 4096, 5120, 5376, 6144, 7168, 8192, 16384, 32768)
# Powers of two, other even and odd numbers between them: with a few of each processor's, all that a choice turns on.
ROWS = (1, *(number << k for k in range(16) for number in (2, 3)), *((number << k) + 1 for k in range(16) for number in (2, 3)))


def kernels_for(card: Card, ops: Sequence[str], dtypes: Sequence[str]) -> dict[Operation, list[Kernel]]:
    """The kernels to be built, each once, by their operation."""
    rows = (*ROWS, 2 * card.processors + 1)
    found: dict[Operation, dict[Kernel, None]] = {}
    for op in ops:
        default, known = OPERATORS[op].default("contract"), OPERATORS[op].codes
        for contract in dict.fromkeys((default, *(code for code in CONTRACTS if code in known))):
            for kernel in kernels_of([op], dtypes, WIDTHS, rows, card.target(), contract=contract):
                found.setdefault(kernel.operation, {})[kernel] = None
    return {operation: list(kernels) for operation, kernels in found.items()}


def build(card: Card, operations: dict[Operation, list[Kernel]], processes: int) -> None:
    """Compile the kernels of these operations and put them into the package."""
    kernels = [kernel for each in operations.values() for kernel in each]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"compiling for {card.name}", total=len(kernels))
        compile_all(kernels, card.cc, processes, lambda: progress.advance(task))
    for operation, each in operations.items():
        shipped.write(operation, card.cc, {repr(kernel.config): machine_code(kernel, card.cc) for kernel in each})


def lacking(card: Card, operations: dict[Operation, list[Kernel]]) -> dict[Operation, list[Kernel]]:
    """Those operations of which the package does not bring every kernel."""
    return {
        operation: kernels
        for operation, kernels in operations.items()
        if not {repr(kernel.config) for kernel in kernels} <= set(shipped.read(operation, card.cc))
    }


class Names(click.ParamType):
    """A list with commas, of known names."""

    name = "names"

    def __init__(self, known: Sequence[str]) -> None:
        self.known = known

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """The names; a usage error for one that is not known, or for none."""
        names = [name.strip() for name in value.split(",")]
        for name in names:
            if name not in self.known:
                self.fail(f"{name!r} is not known; allowed: {', '.join(self.known)}", param, ctx)
        return names


class Unable(click.ClickException):
    """Something outside is lacking: a compiler, room, a permission."""

    exit_code = 3


class Interrupted(click.ClickException):
    """By who started it."""

    exit_code = 130


def _list_option(name: str, known: Sequence[str], about: str) -> Callable[[Any], Any]:
    return click.option(name, type=Names(known), default=",".join(known), metavar="NAMES", show_default=True, help=about)


@click.command(help=__doc__)
@_list_option("--arch", list(CARDS), "Architectures.")
@_list_option("--ops", list(OPERATORS), "Operators.")
@_list_option("--dtypes", DTYPES, "Storage dtypes.")
@click.option("--processes", type=click.IntRange(1), default=os.cpu_count() or 1, help="That compile.  [default: one a core]")
@click.option("--list", "only_list", is_flag=True, help="Say how many kernels there are, and compile none.")
def main(arch: list[str], ops: list[str], dtypes: list[str], processes: int, only_list: bool) -> None:
    for name in arch:
        card = CARDS[name]
        operations = kernels_for(card, ops, dtypes)
        missing = lacking(card, operations)
        if not only_list:
            try:
                build(card, missing, processes)
            except (OSError, RuntimeError) as error:
                raise Unable(f"{name}: {error}") from None
            except KeyboardInterrupt:
                raise Interrupted(f"{name}: interrupted; the disk cache keeps what was compiled") from None
        kernels, to_build = (sum(map(len, each.values())) for each in (operations, missing))
        said = "to be built" if only_list else "built now"
        tried = "" if card.has_run else ", never run"
        click.echo(f"{name} ({card.name}{tried}): {kernels} kernels of {len(operations)} operations, {to_build} {said}")


if __name__ == "__main__":
    main()

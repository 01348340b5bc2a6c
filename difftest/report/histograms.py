"""ULP histograms in the terminal: one for each group that differs, those that conform added up by family and dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from difftest.report import summary
from difftest.report.bins import bins, log_bar
from difftest.report.summary import Group, Total
from difftest.report.table import Styled, Table, terminal
from difftest.wording import counted, share
from reference.operators import operator

BAR = 30
MOST = 6  # of groups that differ: the first few say what the others say


@dataclass(frozen=True, slots=True)
class Pooled:
    """Histograms that are shown as one: what they are of, and an output's counts."""

    title: str
    output: str
    total: Total


def show(screen: Console, groups: Sequence[Group]) -> None:
    """The histograms of a run. An output of which every element is the same is one line."""
    for each in shown(groups):
        _show(screen, each)
    more = sum(bool(group.differing) for group in groups) - MOST
    if more > 0:
        screen.print(f"... and {counted(more, 'more group')} that differ", style="dim")


def shown(groups: Sequence[Group]) -> Iterator[Pooled]:
    """One of each output of the first groups that differ, then those that conform."""
    for group in [group for group in groups if group.differing][:MOST]:
        for name, total in group.totals().items():
            yield Pooled(f"{group.op} {group.dtype} against {group.against}", name, total)
    yield from pooled([group for group in groups if not group.differing])


def pooled(groups: Sequence[Group]) -> Iterator[Pooled]:
    """The outputs of groups by family of operators and dtype, references together: norms have no tail, activations have."""
    families: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        families.setdefault((group.dtype, family(group.op)), []).append(group)
    for (dtype, name), members in families.items():
        ops = dict.fromkeys(group.op for group in members)
        title = f"{next(iter(ops)) if len(ops) == 1 else f'{len(ops)} {name}'} {dtype}"
        for output, total in summary.totals(result for group in members for result in group.results).items():
            yield Pooled(title, output, total)


def family(op: str) -> str:
    """`norms` or `gated activations`."""
    return "gated activations" if operator(op).activation else "norms"


def _show(screen: Console, each: Pooled) -> None:
    total = each.total
    title = f"{each.title}: {each.output}, {total.elements:,} elements"
    if not total.mismatches:
        if total.elements:
            screen.print(f"[bold]{title}[/], all the same")
        return
    screen.print(terminal(_table(title, total), rule=False))


def _table(title: str, total: Total) -> Table:
    found = [each for each in bins(total.histogram) if each.count]
    largest = max([each.count for each in found] + list(total.classes.values()))
    lines: list[tuple[str, str, str, int, str]] = []
    for each in found:
        sides = (f"{each.below:,}", f"{each.above:,}") if each.high else ("", f"{each.count:,}")
        lines.append((each.label, *sides, each.count, "yellow" if each.high else "cyan"))
    lines += [(kind, "", f"{count:,}", count, "red") for kind, count in total.classes.items()]
    rows = tuple(
        (label, below, above, share(count / total.elements), Styled(log_bar(count, largest, BAR), style=colour))
        for label, below, above, count, colour in lines
    )
    return Table(title, ("ULP", "below", "above", "share", "(log scale)"), rows, names=0, left=("(log scale)",))

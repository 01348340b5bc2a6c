"""What a person sees: the environment, progress, a table, ULP histograms, the worst case and how to repeat it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from difftest.cases.case import OUT_GIVEN, OUT_NONE, Case
from difftest.cases.weights import USUAL
from difftest.report import summary
from difftest.report.bins import bins, log_bar
from difftest.report.table import Styled, Table, terminal
from difftest.run.check import Result
from difftest.run.environment import one_line
from difftest.run.session import Outcome
from difftest.wording import counted

STYLE = {"conforms": "green", "differs": "bold red", "no evidence": "yellow"}
BAR = 40
MOST_HISTOGRAMS = 6  # of groups that differ: the first few say what the others say
MOST_REASONS = 4
STABILITY = {"changing": "change from run to run", "batch_dependent": "depend on the batch"}


def console() -> Console:
    """Standard output; where it is no terminal, as wide as COLUMNS says, or 120."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if known else 120, highlight=False)


@contextmanager
def progress(total: int) -> Iterator[Callable[[Case], None]]:
    """A progress bar on standard error while it is a terminal; gives the function to call as each case ends."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield lambda case: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("compiling, then comparing", total=total)

        def step(case: Case) -> None:
            bar.update(task, advance=1, description=f"{case.op} {case.dtype} {case.width}")

        yield step


def heading(screen: Console, environment: Mapping[str, str], candidate: str, against: Sequence[str], cases: int) -> None:
    """The first lines: what is compared with what, and where."""
    screen.print(f"[bold]{escape(candidate)}[/] against [bold]{escape(', '.join(against))}[/]: {counted(cases, 'case')}")
    screen.print(one_line(dict(environment)), style="dim", soft_wrap=True)


def results(screen: Console, outcome: Outcome, repeat: Mapping[str, str], strictly: str = "") -> None:
    """Table, histograms, worst case, further calls, skips, verdict.

    `repeat`: ways of repeating the worst case -> the command. `strictly`: how to make a difference of a remark.
    """
    groups = summary.groups(outcome.results)
    if groups:
        screen.print(terminal(groups_table(groups)))
        _histograms(screen, groups)
    found = summary.worst(outcome.results)
    if found:
        _worst(screen, found, repeat)
    _stability(screen, outcome, strictly)
    _left_out(screen, outcome)
    _verdict(screen, outcome)


def groups_table(groups: Sequence[summary.Group]) -> Table:
    """A line for each operator, dtype and reference: cases, elements, mismatches, the verdict."""
    rows = []
    for group in groups:
        totals = group.totals()
        output, residual = totals.get("output"), totals.get("residual")
        differing = f" in {len(group.differing)}" if group.differing else ""
        rows.append(
            (
                group.op,
                group.dtype,
                group.against,
                f"{len(group.results)}",
                f"{sum(t.elements for t in totals.values()):,}",
                f"{output.mismatches:,}" if output else "-",
                f"{output.max_ulp:,}" if output else "-",
                f"{residual.mismatches:,}" if residual else "-",
                Styled(f"{group.verdict}{differing}", style=STYLE[group.verdict]),
            )
        )
    heads = (
        "operator",
        "dtype",
        "against",
        "cases",
        "elements",
        "output mismatches",
        "max ULP",
        "residual mismatches",
        "verdict",
    )
    return Table("", heads, tuple(rows), names=3, left=("verdict",))


def _histograms(screen: Console, groups: Sequence[summary.Group]) -> None:
    """One for each group that differs; those that conform are added up by dtype."""
    differing = [group for group in groups if group.differing]
    for group in differing[:MOST_HISTOGRAMS]:
        for name, total in group.totals().items():
            _histogram(screen, f"{group.op} {group.dtype} against {group.against}: {name}", total)
    if len(differing) > MOST_HISTOGRAMS:
        screen.print(f"... and {len(differing) - MOST_HISTOGRAMS} more groups that differ", style="dim")
    conforming = [group for group in groups if not group.differing]
    for dtype in dict.fromkeys(group.dtype for group in conforming):
        members = [group for group in conforming if group.dtype == dtype]
        what = members[0].op if len(members) == 1 else f"{len({g.op for g in members})} operators"
        for name, total in summary.totals(r for group in members for r in group.results).items():
            _histogram(screen, f"{what} {dtype}: {name}", total)


def _histogram(screen: Console, title: str, total: summary.Total) -> None:
    if not total.elements:
        return
    found = [b for b in bins(total.histogram) if b.count]
    largest = max([b.count for b in found] + list(total.classes.values()))
    lines: list[tuple[str, str, str, int, str]] = []
    for each in found:
        sides = (f"{each.below:,}", f"{each.above:,}") if each.high else ("", f"{each.count:,}")
        lines.append((each.label, *sides, each.count, "yellow" if each.high else "cyan"))
    lines += [(kind, "", f"{count:,}", count, "red") for kind, count in total.classes.items()]
    rows = tuple(
        (label, below, above, _share(count, total.elements), Styled(log_bar(count, largest, BAR), style=colour))
        for label, below, above, count, colour in lines
    )
    heads = ("ULP", "below", "above", "share", "(log scale)")
    shown = Table(f"{title}, {total.elements:,} elements", heads, rows, names=0, left=("(log scale)",))
    screen.print(terminal(shown, rule=False))


def _share(count: int, elements: int) -> str:
    share = count / elements
    return f"{share:.2%}" if share >= 1e-3 else f"{1e6 * share:.3g} ppm"


def _worst(screen: Console, found: Result, repeat: Mapping[str, str]) -> None:
    case = found.case
    screen.print(f"\n[bold]Worst case[/]: {describe(case)}, against {escape(found.against)}")
    for reason in found.reasons[:MOST_REASONS]:
        screen.print(f"  [red]{escape(reason)}[/]", soft_wrap=True)
    if len(found.reasons) > MOST_REASONS:
        screen.print(f"  ... and {len(found.reasons) - MOST_REASONS} more")
    for name, comparison in found.outputs.items():
        worst = comparison.worst
        if worst:
            inputs = ", ".join(f"{key} {value}" for key, value in worst.inputs.items())
            screen.print(f"  {name}{list(worst.index)}: {worst.actual}, expected {worst.expected}: {worst.apart}", markup=False)
            screen.print(f"    from {inputs}", markup=False, soft_wrap=True)
    for what, command in repeat.items():
        screen.print(f"  {what}: {command}", markup=False, soft_wrap=True)


def _stability(screen: Console, outcome: Outcome, strictly: str) -> None:
    """One line for the cases that were called again and in parts, and two more where there is a remark."""
    again = summary.called_again(outcome.results)
    if not again:
        return
    found = summary.stability(again)
    said = [f"{found[key]} {what}" for key, what in STABILITY.items() if found[key]]
    text = f"called again and in parts: {counted(found['cases'], 'case')}, {', '.join(said) or 'no bit changed'}"
    screen.print(text, style="yellow" if said else "dim")
    remarked = summary.remarked(again)
    if remarked:
        screen.print(f"  a remark: {describe(remarked.case)}: {remarked.remarks[0]}", markup=False, soft_wrap=True)
        screen.print(f"  to make it a difference: {strictly}", markup=False, soft_wrap=True)


def describe(case: Case) -> str:
    """A case in a line: what is not the default is said."""
    shape = "x".join(map(str, (*case.lead, case.width)))
    parts = [f"{case.op} {case.dtype} {shape}, {case.regime}, seed {case.seed}, {case.spelling}"]
    parts += [f"{each.name} {case.contract.value(each.name):g}" for each in case.operator.parameters]
    if case.weight_dtype:
        parts.append(f"{case.weight_dtype} weight")
    if case.weights != USUAL:
        parts.append(f"weights {case.weights}")
    if case.padding:
        parts.append(f"elements between rows: {', '.join(f'{name} {elements}' for name, elements in case.padding)}")
    if case.misaligned:
        parts.append(f"misaligned {' and '.join(case.misaligned)}")
    if case.out != OUT_NONE:
        parts.append("out given" if case.out == OUT_GIVEN else "out is the input")
    return ", ".join(parts)


def _left_out(screen: Console, outcome: Outcome) -> None:
    by_reason: dict[tuple[str, str], list[Mapping[str, object]]] = {}
    for skip in summary.skips_by_reason(outcome.skips):
        by_reason.setdefault((str(skip["against"]), str(skip["reason"])), []).append(skip)
    for (against, reason), members in by_reason.items():
        count = sum(int(str(skip["cases"])) for skip in members)
        what = ", ".join(dict.fromkeys(f"{skip['op']} {skip['dtype']}" for skip in members[:4]))
        more = f" and {len(members) - 4} more" if len(members) > 4 else ""
        screen.print(
            f"[yellow]skipped[/] {escape(against)}, {counted(count, 'case')} ({what}{more}): {escape(reason)}", soft_wrap=True
        )
    for against, followed, contract, count in summary.other_contracts(outcome.results):
        screen.print(
            f"{escape(against)} follows {followed}, the candidate is held to {contract} ({counted(count, 'comparison')}): "
            "the two may differ and both be right",
            style="yellow",
        )
    vacuous = [r for r in outcome.results if r.vacuous and not r.differs]
    if vacuous:
        regimes = ", ".join(dict.fromkeys(r.case.regime for r in vacuous))
        screen.print(
            f"no evidence: {counted(len(vacuous), 'comparison')}, which a trivial mutant passes too ({regimes})", style="dim"
        )


def _verdict(screen: Console, outcome: Outcome) -> None:
    verdict = summary.verdict(outcome)
    compared = sum(c.elements for r in outcome.results for c in r.outputs.values())
    evidence = sum(r.evidence and not r.differs for r in outcome.results)
    differing = sum(r.differs for r in outcome.results)
    if verdict == "differs":
        text = f"{differing} of {counted(len(outcome.results), 'comparison')} {'differs' if differing == 1 else 'differ'}"
    elif not compared:
        text = "nothing was compared, which is no pass"
    elif outcome.fault:
        text = f"the run ended by a fault of the tester itself, after {counted(len(outcome.results), 'comparison')}"
    elif verdict == "no evidence":
        named = [f"{g.op} {g.dtype}" for g in summary.groups(outcome.results) if g.verdict == "no evidence"]
        what = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
        text = f"no case of {what} can tell a trivial mutant from the operator, which is no pass"
    else:
        text = f"{counted(evidence, 'comparison')}, each of which a trivial mutant fails; {len(outcome.results)} in all"
    early = f"; [yellow]{summary.early(outcome)}[/]" if outcome.not_run else ""
    line = f"[{STYLE[verdict]}]{verdict}[/]: {text}; {compared:,} elements in {outcome.seconds:.1f} s{early}"
    screen.print(line, soft_wrap=True)


def command_line(*words: object) -> str:
    """`python cli.py WORDS`, quoted for a shell."""
    return shlex.join(["python", "cli.py", *map(str, words)])

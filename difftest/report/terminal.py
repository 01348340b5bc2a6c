"""What a person sees: the environment, progress, a table, ULP histograms, the worst case and how to repeat it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from difftest.cases.case import OUT_GIVEN, OUT_NONE, Case
from difftest.cases.weights import USUAL
from difftest.report import accounts, histograms, summary, worst
from difftest.report.table import Entry, Styled, Table, terminal
from difftest.run.check import Result
from difftest.run.environment import one_line
from difftest.run.session import Outcome
from difftest.wording import compact, counted

STYLE = {"conforms": "green", "differs": "bold red", "no evidence": "yellow"}
MOST_NOTES = 5  # kinds of what a candidate did beside computing
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


def results(
    screen: Console, outcome: Outcome, repeat: Mapping[str, str], strictly: str = "", coverage: Sequence[str] = ()
) -> None:
    """Tables, histograms, worst case, further calls, what was left out, how many comparisons ended how, coverage, verdict.

    `repeat`: ways of repeating the worst case -> the command. `strictly`: how to make a difference of a remark. `coverage`: the
    lines that say what was covered and what was not.
    """
    groups = summary.groups(outcome.results)
    for each in groups_tables(groups):
        screen.print(terminal(each))
    histograms.show(screen, groups)
    found = summary.worst(outcome.results)
    if found:
        _worst(screen, found, repeat)
    _stability(screen, outcome, strictly)
    _beside(screen, outcome)
    for (op, dtype, code), reason in summary.leanings(outcome.results).items():
        say(screen, f"[{STYLE['differs']}]all cases of {op} {dtype} {code} together[/]: {escape(reason)}")
    _left_out(screen, outcome)
    _accounts(screen, outcome)
    for line in coverage:
        say(screen, escape(line), style="dim")
    _verdict(screen, outcome)


def groups_tables(groups: Sequence[summary.Group]) -> list[Table]:
    """A table for each reference, with a line for each operator and dtype. Residuals only where one is not the same."""
    references = list(dict.fromkeys(group.against for group in groups))
    return [
        _groups_table(f"against {name}" if len(references) > 1 else "", [group for group in groups if group.against == name])
        for name in references
    ]


def _groups_table(title: str, groups: Sequence[summary.Group]) -> Table:
    heads = ["operator", "dtype", "verdict", "cases", "elements", "output mismatches", "max ULP"]
    residuals = any("residual" in group.totals() and group.totals()["residual"].mismatches for group in groups)
    if residuals:
        heads.append("residual mismatches")
    rows = []
    for group in groups:
        totals = group.totals()
        output, residual = totals.get("output"), totals.get("residual")
        row: list[Entry] = [
            group.op,
            group.dtype,
            Styled(group.verdict, style=STYLE[group.verdict]),
            f"{len(group.differing)} of {len(group.results)}" if group.differing else f"{len(group.results)}",
            f"{sum(total.elements for total in totals.values()):,}",
            f"{output.mismatches:,}" if output else "-",
            compact(output.max_ulp) if output else "-",
        ]
        if residuals:
            row.append(f"{residual.mismatches:,}" if residual else "-")
        rows.append(tuple(row))
    return Table(title, tuple(heads), tuple(rows), names=2, left=("verdict",))


def _worst(screen: Console, found: Result, repeat: Mapping[str, str]) -> None:
    say(screen, f"\n[bold]{escape(worst.headline(found))}[/]: {describe(found.case)}, against {escape(found.against)}")
    for reason in found.reasons[: worst.MOST_REASONS]:
        say(screen, f"  [red]{escape(reason)}[/]")
    if len(found.reasons) > worst.MOST_REASONS:
        screen.print(f"  ... and {len(found.reasons) - worst.MOST_REASONS} more")
    for line in worst.lines(found):
        say(screen, f"  {escape(line)}")
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


def _beside(screen: Console, outcome: Outcome) -> None:
    """What the candidate did beside computing, and where that is kept which it printed."""
    found = summary.notes(outcome.results)
    for note, count in found.most_common(MOST_NOTES):
        say(screen, f"beside computing it {escape(note)}: {counted(count, 'case')}", style="yellow")
    if len(found) > MOST_NOTES:
        say(screen, f"  ... and {len(found) - MOST_NOTES} more", style="yellow")
    if outcome.printed:
        screen.print(f"what it printed: {outcome.printed}", markup=False, soft_wrap=True)


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


def _accounts(screen: Console, outcome: Outcome) -> None:
    """The comparisons, added up, and what the names mean that need it."""
    say(screen, accounts.sentence(outcome))
    for name in accounts.accounts(outcome):
        if name in accounts.WHY:
            regimes = f" ({accounts.unproved(outcome)})" if name == accounts.NO_EVIDENCE else ""
            say(screen, f"  {name}: {accounts.WHY[name]}{regimes}", style="dim")


def _verdict(screen: Console, outcome: Outcome) -> None:
    verdict = summary.verdict(outcome)
    compared = sum(c.elements for r in outcome.results for c in r.outputs.values())
    found = accounts.accounts(outcome)
    if verdict == "differs":
        text = f"{found[accounts.DIFFER]:,} of {counted(len(outcome.results), 'comparison')}"
    elif not compared:
        text = "nothing was compared, which is no pass"
    elif outcome.fault:
        text = f"the run ended by a fault of the tester itself, after {counted(len(outcome.results), 'comparison')}"
    elif verdict == "no evidence":
        named = [f"{g.op} {g.dtype}" for g in summary.groups(outcome.results) if g.verdict == "no evidence"]
        what = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
        text = f"no case of {what} can tell a trivial mutant from the operator, which is no pass"
    else:
        text = counted(found[accounts.CONFORM], "comparison")
    early = f"; [yellow]{summary.early(outcome)}[/]" if outcome.not_run else ""
    line = f"[{STYLE[verdict]}]{verdict}[/]: {text}; {compared:,} elements in {outcome.seconds:.1f} s{early}"
    screen.print(line, soft_wrap=True)


def say(screen: Console, text: str, style: str = "") -> None:
    """A sentence in rich's markup: on a terminal broken at blanks, indented as it begins; one line in a file or a pipe."""
    if screen.is_terminal:
        said = text.lstrip(" ")
        screen.print(Padding(Text.from_markup(said, style=style), (0, 0, 0, len(text) - len(said)), expand=False))
    else:
        screen.print(text, style=style, soft_wrap=True)


def command_line(*words: object) -> str:
    """`python cli.py WORDS`, quoted for a shell."""
    return shlex.join(["python", "cli.py", *map(str, words)])

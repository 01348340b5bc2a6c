"""What follows a session's cases: the search that fills a time budget, and its failures, shrunk, saved, and written as a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from difftest.cases.case import Case
from difftest.cases.request import Request
from difftest.errors import LackingError
from difftest.report import record
from difftest.run.check import Result, check
from difftest.run.isolation import LOST
from difftest.run.session import DIED, Outcome, Session
from difftest.search import emit, report
from difftest.search.run import Finding, Searched, search
from reference.providers import Provider


def beyond(session: Session, request: Request | None, outcome: Outcome, *, shrinks: bool) -> Searched | None:
    """The session's failures shrunk, and the search of what is left of its time budget. None without a budget, unless
    it `shrinks` all the same. Each failure that is found is one more result of the outcome.

    Without a request there is nothing to search in.
    """
    if outcome.interrupted or outcome.fault or (session.time_budget is None and not shrinks):
        return None
    session = session.opened()
    candidate = session.provider
    assert candidate
    strict = session.batch_invariant or bool(getattr(candidate, "batch_invariant", False))
    left = 0.0 if session.time_budget is None else session.time_budget - outcome.seconds
    found = search(candidate, smallest_failures(outcome.results), request, time.monotonic() + left, strict)
    outcome.interrupted, outcome.fault = found.interrupted, found.fault
    ran = {result.case for result in outcome.results}
    for finding in (each for each in found.findings if each.case not in ran):
        outcome.results += _results(finding, candidate, session.references, strict)
    return found


def smallest_failures(results: Sequence[Result]) -> list[Case]:
    """Of each operator and dtype with a difference the case of the fewest elements: where shrinking has the shortest way. None
    that ended its process: each attempt would cost another.
    """
    found: dict[tuple[str, str], Case] = {}
    for result in results:
        case = result.case
        if result.differs and not any(said in reason for reason in result.reasons for said in (DIED, *LOST)):
            best = found.setdefault((case.op, case.dtype), case)
            if case.rows * case.width < best.rows * best.width:
                found[case.op, case.dtype] = case
    return list(found.values())


def show(screen: Console, searched: Searched, candidate: str, failures: Path, again: Callable[[Path], str]) -> None:
    """Prints what the search came to, and each failure with how to run it `again` from the file that it is saved in."""
    for line in report.lines(searched):
        screen.print(line, style="dim", soft_wrap=True)
    for finding in searched.findings:
        for line in report.finding_lines(finding):
            screen.print(line, markup=False, soft_wrap=True)
        try:
            saved = record.save_case(failures, Result(finding.case, candidate, "torch", finding.reasons))
            screen.print(f"  this case again: {again(saved)}", markup=False, soft_wrap=True)
        except LackingError as error:
            screen.print(f"  this case is not saved: {error}", markup=False, soft_wrap=True)


def write_test(screen: Console, searched: Searched, candidate: str, path: Path) -> None:
    """Writes the first failure as a test, or says that there is none."""
    if searched.findings:
        emit.write(path, candidate, searched.findings[0])
        screen.print(f"  as a test: {path}", markup=False, soft_wrap=True)
    else:
        screen.print(f"--emit-pytest: {path} is not written: there is no failure", style="yellow", markup=False, soft_wrap=True)


def _results(finding: Finding, candidate: Provider, references: Sequence[Provider], strict: bool) -> list[Result]:
    """The shrunk case against each reference; a failure that does not come back stays one."""
    found = [r for r in check(finding.case, candidate, references, again=True, batch_invariant=strict) if isinstance(r, Result)]
    if not found:
        found = [Result(finding.case, candidate.name, each.name, finding.reasons) for each in references]
    return [each if each.differs else replace(each, reasons=finding.reasons) for each in found]

"""What `difftest` and `replay` share: a session run and reported, and the commands that repeat its worst case."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from difftest import errors, options
from difftest.cases.generate import FAR_APART
from difftest.cases.request import Request
from difftest.commands.beyond import beyond, show, write_test
from difftest.commands.files import Files
from difftest.errors import LackingError, UsageError
from difftest.report import record, summary, terminal
from difftest.report.baseline import Baseline
from difftest.report.coverage import coverage
from difftest.report.journals import ended
from difftest.run import cost
from difftest.run import session as sessions
from difftest.run.check import Result, nothing_runs
from difftest.run.environment import environment
from difftest.run.journal import Journal
from difftest.run.session import Session
from difftest.search.report import to_json

STRICT = "--batch-invariant"


def compare(
    session: Session,
    files: Files,
    asked: Mapping[str, Any],
    defaults: Mapping[str, Any],
    request: Request | None = None,
    notes: Sequence[str] = (),
    baseline: Baseline | None = None,
    journal: Journal | None = None,
) -> int:
    """Runs the session, reports it and writes its files. Returns the exit status.

    `asked`: what the JSON says of the request. `defaults`: `difftest`'s options -> their defaults, which a command to repeat a
    case leaves out. `request`: what the session's cases were generated from. `baseline`: an earlier run, whose figures are held
    against this one's. `journal`: where what each case shows is kept as it ends, and was kept by a run that this one goes on
    with.
    """
    session = session.opened()
    try:
        return _compare(session, files, asked, defaults, request, notes, baseline, journal)
    finally:
        session.close()


def _compare(
    session: Session,
    files: Files,
    asked: Mapping[str, Any],
    defaults: Mapping[str, Any],
    request: Request | None,
    notes: Sequence[str],
    baseline: Baseline | None,
    journal: Journal | None,
) -> int:
    device = session.cases[0].device if session.cases else "cpu"
    _check_providers(session, device)
    if baseline:
        baseline.check(session.cases, session.against)
    screen = terminal.console()
    where = environment(device)
    terminal.heading(screen, where, session.candidate, session.against, len(session.cases))
    for note in notes:
        screen.print(note, style="yellow")
    if expected := cost.announcement(session):
        print(expected, file=sys.stderr)
    with terminal.progress(len(session.cases)) as on_case:
        outcome = sessions.run(session, on_case, journal)
    covered = coverage(request, outcome.results) if request else None
    searched = beyond(session, request, outcome, shrinks=files.emit_pytest is not None)
    found = summary.worst(outcome.results)
    repeat = _ways_to_repeat(found, session, request, files.failures, defaults) if found else {}
    remarked = summary.remarked(outcome.results)
    strictly = f"with {STRICT}"
    if remarked and request:
        strictly = terminal.command_line(*_narrowed(remarked, session, request, defaults), STRICT)
    terminal.results(screen, outcome, repeat, strictly, covered.lines() if covered else ())
    wanted = {"candidate": session.candidate, "against": list(session.against), **asked}
    document = record.document(outcome, where, wanted, covered.to_json() if covered else None)
    status = summary.exit_status(outcome)
    if searched:
        document["search"] = to_json(searched)
        show(screen, searched, session.candidate, files.failures, lambda saved: terminal.command_line("replay", saved))
        if files.emit_pytest:
            write_test(screen, searched, session.candidate, files.emit_pytest)
    if baseline:
        change = baseline.against(document)
        document["baseline"] = change.to_json()
        for line in change.lines():
            screen.print(line, style="red" if change.worse else "dim", markup=False, soft_wrap=True)
        status = status or (errors.DIFFERS if change.worse else errors.CONFORMS)
    files.write(document, outcome, repeat)
    if journal:
        ended(screen, journal, whole=not outcome.not_run)
    if outcome.fault:
        raise outcome.fault
    return status


def _check_providers(session: Session, device: str) -> None:
    """Errors before the run: a candidate that can't run here, no case."""
    assert session.provider
    reason = nothing_runs(session.provider, session.cases)
    if reason:
        raise LackingError(f"--candidate: {session.candidate} can't run on {device}: {reason}")
    if not session.cases:
        raise UsageError("--regimes: none of them applies to the operators asked for, so there is no case to run")


def _ways_to_repeat(
    found: Result, session: Session, request: Request | None, failures: Path, defaults: Mapping[str, Any]
) -> dict[str, str]:
    """What to call each way of running the worst case again -> the command. Saves the case if it differs, or says why not."""
    ways = {}
    if found.differs:
        try:
            ways["this case again"] = terminal.command_line("replay", record.save_case(failures, found))
        except LackingError as error:
            ways["this case is not saved"] = str(error)
        who = ("--op", found.case.op, "--candidate", session.candidate)
        ways["which contract it follows"] = terminal.command_line("identify", *who)
    if request and found.case.given is None:
        ways["and its neighbours"] = terminal.command_line(*_narrowed(found, session, request, defaults))
    return ways


def _narrowed(found: Result, session: Session, request: Request, defaults: Mapping[str, Any]) -> list[object]:
    """The words of a `difftest` command whose cases contain this one: its seed depends on no other option."""
    case = found.case
    words: list[object] = ["difftest", "--ops", case.op, "--dtypes", case.dtype]
    part, _, number = case.origin.partition(":")
    if part == "grid":
        words += ["--widths", case.width, "--rows", case.rows, "--regimes", case.regime]
    else:
        words += ["--widths", ",".join(map(str, request.widths))] if request.widest is None else []
        words += ["--rows", ",".join(map(str, request.rows))] if request.rows is not None else []
        words += ["--regimes", ",".join(request.regimes)] if request.regimes is not None else []
    words += ["--cases", int(number) + 1 if part == "random" else 0]
    needed = {
        "--candidate": session.candidate,
        "--against": found.against,
        "--contract": case.spelling,
        "--eps": request.contracts[case.op].eps,
        "--device": case.device,
        "--seed": request.seed,
        "--strength": request.strength if part in ("array", FAR_APART) else 0,
    }
    usual = {**defaults, "--contract": case.operator.codes[0], "--device": options.device(str(defaults["--device"]))}
    for option, value in needed.items():
        if value != usual[option]:
            words += [option, value]
    if session.batch_invariant:
        words.append(STRICT)
    return words

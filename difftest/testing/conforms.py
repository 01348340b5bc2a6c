"""One assertion for a test of one's own: a callable follows its contract, in all cases that `difftest` would run."""

from __future__ import annotations

import inspect
import io
import reprlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from difftest import errors, options
from difftest.cases.case import Case
from difftest.cases.request import Request
from difftest.cli import DEFAULTS, FAILURES
from difftest.commands.beyond import beyond, show
from difftest.commands.difftest import planned
from difftest.errors import UsageError
from difftest.options import Given
from difftest.providers.file import FileCandidate
from difftest.providers.resolve import is_file, operator_named, resolve
from difftest.report import record, summary, terminal
from difftest.run import session as sessions
from difftest.run.session import Outcome, Session
from reference.providers import Provider

COLUMNS = 100  # of the report in an AssertionError

Words = str | int | Sequence[str | int]


def assert_conforms(
    function: Callable | str,
    op: str = "",
    *,
    contract: str = "",
    eps: float = DEFAULTS["--eps"],
    dtypes: Words = DEFAULTS["--dtypes"],
    widths: Words = "",
    rows: Words = "",
    regimes: Words = "",
    cases: int = 0,
    strength: int = DEFAULTS["--strength"],
    seed: int = DEFAULTS["--seed"],
    device: str = DEFAULTS["--device"],
    against: Words = DEFAULTS["--against"],
    time_budget: float | None = None,
    batch_invariant: bool = False,
    failures: str | Path = FAILURES,
    case: Case | Mapping[str, Any] | str | Path | None = None,
) -> None:
    """Raises AssertionError where `function` is not the operator `op` under `contract`; its text is the report: reasons, ULP
    histograms, and the smallest case that still fails, with how to run it again.

    `function`: of FlashInfer's signature, on torch tensors; or as `--candidate` spells one, FILE.py:FUNCTION. `op`: left out, it
    is what the function's name says. The other arguments are the options of `difftest`; a list is a sequence, or text with
    commas. `case`: this one alone, as a record, or its file. `failures`: the folder in which failing cases are kept; those that
    are there run first. Nothing compared is no pass: AssertionError too. UsageError, a ValueError, for an argument that makes no
    sense; LackingError where the environment lacks something.
    """
    __tracebackhide__ = True
    _check(str, "text", op=op, contract=contract, device=device)
    _check(int, "a whole number", seed=seed, cases=cases, strength=strength)
    _check((int, float), "a number", eps=eps, time_budget=time_budget or 0)
    _check((str, int, Sequence), "text or a list", dtypes=dtypes, widths=widths, rows=rows, regimes=regimes, against=against)
    _check((str, Callable), "a function or text", function=function)
    _check((str, Path), "a path", failures=failures)
    provider = resolve(function, "function") if isinstance(function, str) else FileCandidate(_named(function), function)
    if case is not None:
        session = _one(_case(case), provider, _text(against), device, batch_invariant)
        request: Request | None = None
    else:
        given = Given(
            ops=op or operator_named(provider.name.rpartition(":")[2], "op"),
            dtypes=_text(dtypes),
            widths=_text(widths),
            rows=_text(rows),
            regime_names=_text(regimes),
            candidate=provider.name,
            against=_text(against),
            contract=contract,
            eps=eps,
            device=device,
            seed=seed,
            cases=cases,
            strength=strength,
            time_budget=time_budget,
            workers=0,
            batch_invariant=batch_invariant,
        )
        session, request, _ = planned(given, DEFAULTS, Path(failures), provider)
    outcome = sessions.run(session)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if time_budget is None and _conforms(outcome, alone=request is None):
        return
    searched = beyond(session, request, outcome, shrinks=True)
    if not _conforms(outcome, alone=request is None):
        raise AssertionError(_report(session, outcome, searched, Path(failures)))


def _check(kind: Any, allowed: str, **given: Any) -> None:
    """UsageError for an argument that is of another kind than its option."""
    for name, value in given.items():
        if not isinstance(value, kind):
            raise UsageError(f"{name}: {reprlib.repr(value)} is not allowed; allowed: {allowed}")


def _conforms(outcome: Outcome, *, alone: bool) -> bool:
    """Whether nothing differs, and something was shown; of a case `alone`, which was chosen for what it shows, compared."""
    if alone:
        compared = sum(c.elements for result in outcome.results for c in result.outputs.values())
        return bool(compared) and not any(result.differs for result in outcome.results)
    return summary.exit_status(outcome) == errors.CONFORMS


def _report(session: Session, outcome: Outcome, searched: Any, failures: Path) -> str:
    """What `difftest` prints, as text, the verdict first."""
    text = io.StringIO()
    screen = Console(file=text, width=COLUMNS, no_color=True, highlight=False)
    differing = sum(result.differs for result in outcome.results)
    said = f"{differing} of {len(outcome.results)} comparisons differ" if differing else "nothing was shown, which is no pass"
    screen.print(f"{session.candidate} does not conform: {said}", markup=False, soft_wrap=True)
    terminal.results(screen, outcome, {})
    if searched:
        show(screen, searched, session.candidate, failures, partial(_again, session.candidate))
    return text.getvalue()


def _again(candidate: str, saved: Path) -> str:
    """How to run a saved case again: a command, or a call for a function that no command finds."""
    if is_file(candidate):
        return shlex.join(["numba-kernels", "replay", str(saved)])
    return f"assert_conforms({candidate}, case={str(saved)!r})"


def _one(case: Case, provider: Provider, against: str, device: str, batch_invariant: bool) -> Session:
    placed = replace(case, device=options.device(device))
    return Session(
        [placed],
        provider.name,
        options.words("against", against),
        again=frozenset([0]),
        batch_invariant=batch_invariant,
        provider=provider,
    )


def _case(given: Case | Mapping[str, Any] | str | Path) -> Case:
    if isinstance(given, Case):
        return given
    if isinstance(given, str | Path):
        return record.load_case(str(given))[0]
    try:
        return Case.from_json(given)
    except ValueError as error:
        raise UsageError(f"case: {error}") from None


def _text(words: Words) -> str:
    """A list as the command line has it."""
    return words if isinstance(words, str) else str(words) if isinstance(words, int) else ",".join(map(str, words))


def _named(function: Callable) -> str:
    """FILE.py:NAME of a function that can be found by that, else what it calls itself."""
    name = getattr(function, "__qualname__", type(function).__name__)
    module = inspect.getmodule(function)
    if module is None or getattr(module, name, None) is not function:
        return name
    return f"{inspect.getsourcefile(function)}:{name}"

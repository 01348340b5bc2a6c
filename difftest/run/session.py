"""Runs a request's cases, here or in worker processes, and keeps what was found whatever stops it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from difftest import interrupts
from difftest.cases.case import Case
from difftest.providers.resolve import is_file, resolve
from difftest.run import pool
from difftest.run.check import Result, Skip, check
from reference.providers import Provider

DIED = "the process died in the middle of the call"  # of a case that ended its worker
MOST_CRASHES = 8  # of a run's workers; each costs a new process, and what the last of them leaves is given up

Found = list[Result | Skip]


@dataclass(frozen=True, slots=True)
class Session:
    """Which cases, which candidate, against whom; how many processes (0: this one); when to stop starting new cases.

    `again`: the indexes of the cases that are called again, and in parts. `batch_invariant`: bits that depend on the part
    are a difference. `provider`: the candidate itself, where its name says too little to find it by; for this process alone.
    """

    cases: Sequence[Case]
    candidate: str
    against: Sequence[str]
    workers: int = 0
    time_budget: float | None = None  # seconds
    again: frozenset[int] = frozenset()
    batch_invariant: bool = False
    provider: Provider | None = None

    def groups(self) -> list[list[int]]:
        """The cases by what shares compiled kernels: one dtype of an operator, and of its Gemma form, which differs in a number
        alone."""
        found: dict[tuple[object, str], list[int]] = {}
        for index, case in enumerate(self.cases):
            found.setdefault((case.operator.formula, case.dtype), []).append(index)
        return list(found.values())


@dataclass(slots=True)
class Outcome:
    """What a session's cases showed, in their order, however far the run came. `references`: how many each was held against."""

    results: list[Result] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    not_run: int = 0
    interrupted: bool = False
    fault: Exception | None = None  # of the tester itself, which ended the run
    seconds: float = 0.0
    references: int = 1


class Checks:
    """A pool's work: the check of a case by its index. A process looks the candidate and the references up once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._providers: list[Provider] = []

    def begin(self, group: int) -> Callable[[int], Found]:
        """The check of a case."""
        if not self._providers:
            self._providers = [self._session.provider or resolve(self._session.candidate)]
            self._providers += [resolve(name, "--against") for name in self._session.against]
        return self._check

    def name(self, index: int) -> str:
        """The case."""
        return str(self._session.cases[index])

    def _check(self, index: int) -> Found:
        candidate, *references = self._providers
        again = index in self._session.again
        return check(
            self._session.cases[index], candidate, references, again=again, batch_invariant=self._session.batch_invariant
        )


def default_workers(candidate: str, device: str) -> int:
    """One process a core, at most four, for the Numba kernels on the CPU: compiling them takes most of the time.

    None on a GPU, which one process fills, and none for other candidates, which run faster than a worker starts.
    """
    if device != "cpu" or is_file(candidate) or candidate != "numba":
        return 0
    cores = pool.cores()
    return min(4, cores) if cores > 1 else 0


def run(session: Session, on_case: Callable[[Case], None] = lambda case: None) -> Outcome:
    """Runs the session; calls `on_case` as each case ends. Ctrl-C or SIGTERM ends it early and leaves what was found, and
    so does a fault of the tester's own, once anything was found.
    """
    start = time.monotonic()
    deadline = float("inf") if session.time_budget is None else time.time() + session.time_budget
    found: dict[int, Found] = {}

    def keep(group: int, index: int, answer: Any) -> None:
        found[index] = _died(session, index, answer) if isinstance(answer, pool.Lost) else answer
        on_case(session.cases[index])

    outcome = Outcome(references=len(session.against))
    try:
        with interrupts.on_sigterm_too():
            limits = pool.Limits(deadline, MOST_CRASHES)
            groups = session.groups() if session.workers else [range(len(session.cases))]
            pool.run(Checks(session), groups, keep, processes=session.workers, limits=limits)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except Exception as error:
        if not found:
            raise
        outcome.fault = error
    for index in sorted(found):
        for what in found[index]:
            if isinstance(what, Result):
                outcome.results.append(what)
            else:
                outcome.skips.append(what)
    outcome.not_run = len(session.cases) - len(found)
    outcome.seconds = time.monotonic() - start
    return outcome


def _died(session: Session, index: int, lost: pool.Lost) -> Found:
    reason = f"{DIED} (exit code {lost.exit_code})" if lost.started else f"{lost.why} before the call"
    return [Result(session.cases[index], session.candidate, name, (reason,)) for name in session.against]

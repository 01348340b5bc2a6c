"""Runs a request's cases, here or in worker processes, and keeps what was found whatever stops it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from difftest import interrupts
from difftest.cases.case import Case
from difftest.providers.resolve import is_file, resolve
from difftest.run import isolation, on_ray, pool
from difftest.run.check import Result, Skip, check
from difftest.run.isolation import GivenUp, Isolated
from difftest.run.journal import Journal
from reference.providers import Provider

DIED = "the process died in the middle of the call"  # of a case that ended its worker
CALLS = 10  # of a case, at most: the candidate again and in parts, the references, a form to compile in each
MOST_CRASHES = 8  # of a run's workers; each costs a new process, and what the last of them leaves is given up

Found = list[Result | Skip]


@dataclass(frozen=True, slots=True)
class Session:
    """Which cases, which candidate, against whom; how many processes (0: this one); when to stop starting new cases.

    `again`: the indexes of the cases that are called again, and in parts. `batch_invariant`: bits that depend on the part
    are a difference. `isolated`: other people's code runs in processes of its own, a call of it `call_seconds` at most (None: by
    its size). `on`: the cluster that the cases run on, in place of workers here. `provider`, `references`: the candidate and the
    references themselves, for this process alone: `opened`.
    """

    cases: Sequence[Case]
    candidate: str
    against: Sequence[str]
    workers: int = 0
    time_budget: float | None = None  # seconds
    again: frozenset[int] = frozenset()
    batch_invariant: bool = False
    isolated: bool = True
    call_seconds: float | None = None
    provider: Provider | None = None
    references: tuple[Provider, ...] = ()
    on: str = ""

    @property
    def elsewhere(self) -> bool:
        """Whether the cases run in other processes."""
        return bool(self.workers or self.on)

    def opened(self) -> Session:
        """The session with its providers looked up, in processes of their own where it is isolated. UsageError for a name that
        means nothing. What is opened is to be closed."""
        if self.provider and len(self.references) == len(self.against):
            return self
        found: list[Provider] = []
        try:
            found.append(self.provider or self._provider(self.candidate, "--candidate"))
            found += [self._provider(name, "--against") for name in self.against]
        except BaseException:
            _close(found)
            raise
        return replace(self, provider=found[0], references=tuple(found[1:]))

    def close(self) -> None:
        """Ends the providers' processes."""
        _close([*([self.provider] if self.provider else []), *self.references])

    def _provider(self, spec: str, option: str) -> Provider:
        if not self.isolated:
            return resolve(spec, option)
        device = self.cases[0].device if self.cases else "cpu"
        return isolation.provider(spec, option, device=device, seconds=self.call_seconds)

    def groups(self) -> list[list[int]]:
        """The cases by what shares compiled kernels: one dtype of an operator, and of its Gemma form, which differs in a number
        alone."""
        found: dict[tuple[object, str], list[int]] = {}
        for index, case in enumerate(self.cases):
            found.setdefault((case.operator.formula, case.dtype), []).append(index)
        return list(found.values())


@dataclass(slots=True)
class Outcome:
    """What a session's cases showed, in their order, however far the run came. `references`: how many each was held against.
    `given_up`: why some were not run. `printed`: the file of what the candidate printed.
    """

    results: list[Result] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    not_run: int = 0
    given_up: str = ""
    printed: Path | None = None
    interrupted: bool = False
    fault: Exception | None = None  # of the tester itself, which ended the run
    seconds: float = 0.0
    references: int = 1


class Checks:
    """A pool's work: the check of a case by its index. A process looks the candidate and the references up once."""

    def __init__(self, session: Session) -> None:
        self.needs_gpu = bool(session.cases) and session.cases[0].device != "cpu"
        self._session = session
        if session.elsewhere:  # an isolated candidate's process is this one's
            isolated = isinstance(session.provider, Isolated)
            self._session = replace(session, provider=None if isolated else session.provider, references=())

    def begin(self, group: int) -> Callable[[int], Found | GivenUp]:
        """The check of a case."""
        self._session = self._session.opened()
        return self._check

    def name(self, index: int) -> str:
        """The case."""
        return str(self._session.cases[index])

    def _check(self, index: int) -> Found | GivenUp:
        session = self._session
        assert session.provider
        again, strict = index in session.again, session.batch_invariant
        try:
            return check(session.cases[index], session.provider, session.references, again=again, batch_invariant=strict)
        except GivenUp as error:
            return error


def default_workers(candidate: str, device: str) -> int:
    """One process a core, at most four, for the Numba kernels on the CPU: compiling them takes most of the time.

    None on a GPU, which one process fills, and none for other candidates, which run faster than a worker starts.
    """
    if device != "cpu" or is_file(candidate) or candidate != "numba":
        return 0
    cores = pool.cores()
    return min(4, cores) if cores > 1 else 0


def run(session: Session, on_case: Callable[[Case], None] = lambda case: None, journal: Journal | None = None) -> Outcome:
    """Runs the session; calls `on_case` as each case ends. What a journal holds of it is not run again; the rest is added to it
    as it ends. Ctrl-C or SIGTERM ends it early and leaves what was found, and
    so does a fault of the tester's own, once anything was found.
    """
    start = time.monotonic()
    deadline = float("inf") if session.time_budget is None else time.time() + session.time_budget
    found = _earlier(session, journal) if journal else {}
    for index in found:
        on_case(session.cases[index])

    def keep(group: int, index: int, answer: Any) -> None:
        if isinstance(answer, GivenUp):
            outcome.given_up = str(answer)
            return
        found[index] = _died(session, index, answer) if isinstance(answer, pool.Lost) else answer
        if journal:
            journal.keep(session.cases[index], index in session.again, found[index])
        on_case(session.cases[index])

    outcome, directory = Outcome(references=len(session.against)), os.getcwd()
    opened = session if session.elsewhere else session.opened()
    try:
        with interrupts.on_sigterm_too():
            limits = pool.Limits(deadline, MOST_CRASHES, _silence(session))
            groups = session.groups() if session.elsewhere else [list(range(len(session.cases)))]
            groups = [[index for index in group if index not in found] for group in groups]
            on_ray.run(Checks(opened), groups, keep, on=session.on, processes=session.workers, limits=limits)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except Exception as error:
        if not found:
            raise
        outcome.fault = error
    finally:
        os.chdir(directory)  # a candidate in this process may have left it, and files are named from it
        if opened is not session:
            opened.close()
    for index in sorted(found):
        for what in found[index]:
            if isinstance(what, Result):
                outcome.results.append(what)
            else:
                outcome.skips.append(what)
    if any(note.startswith("printed ") for result in outcome.results for note in result.notes):
        outcome.printed = isolation.printed_by(session.candidate)
    outcome.not_run = len(session.cases) - len(found)
    outcome.seconds = time.monotonic() - start
    return outcome


def _silence(session: Session) -> float | None:
    """Seconds after which a worker that says nothing is taken to hang: of what runs in it, not in a process of its own."""
    longest = max((isolation.limit(case, session.call_seconds) for case in session.cases), default=0.0)
    return CALLS * longest if session.workers else None


def _earlier(session: Session, journal: Journal) -> dict[int, Found]:
    """What the journal holds of the session's cases, by index."""
    held = {index: journal.found(case, index in session.again) for index, case in enumerate(session.cases)}
    return {index: found for index, found in held.items() if found is not None}


def _close(providers: Sequence[Provider]) -> None:
    for each in providers:
        if isinstance(each, Isolated):
            each.close()


def _died(session: Session, index: int, lost: pool.Lost) -> Found:
    reason = f"{DIED} (exit code {lost.exit_code})" if lost.started else f"{lost.why} before the call"
    return [Result(session.cases[index], session.candidate, name, (reason,)) for name in session.against]

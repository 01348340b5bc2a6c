"""The search that fills a time budget: each operator and dtype in turn, widths swept and dimensions combined, failures shrunk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, product

import torch

from difftest.cases.case import Case
from difftest.cases.given import Values
from difftest.cases.request import Request
from difftest.run.isolation import GivenUp, Isolated
from difftest.search import attempt, kinds
from difftest.search.combine import Combinations
from difftest.search.example import Example
from difftest.search.shrink import shrink
from difftest.search.sweep import sweep
from difftest.verdict.vacuity import survivors
from reference.providers import Provider, Unavailable

SHRINK_SECONDS = 30.0  # of one failure, beyond the time budget if need be: a scan of 5 000 widths takes 10 to 25 s on one core
MOST_SHRUNK = 4  # of the failures known beforehand
SLICE_SECONDS = 1.0  # of one strategy of one group, then it is another's turn
TOGETHER, TURN_SECONDS = 16, 0.2  # widths called in one turn at most, and how long a turn may take if the next is to have more
SWEEPS = 7  # slices in which widths are swept, to one in which dimensions are combined


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure, shrunk. `case` holds its values; `found` is the case that it was shrunk from, in `calls`.

    `whole`: no pass makes it simpler; else the time was up.
    """

    case: Case
    reasons: tuple[str, ...]
    found: Case
    calls: int
    whole: bool


@dataclass(slots=True)
class Group:
    """The search of one operator and dtype: how many cases of the sweep and how many combinations were tried, what was found."""

    op: str
    dtype: str
    swept: int = 0
    combined: int = 0
    finding: Finding | None = None


@dataclass(slots=True)
class Searched:
    """What a search came to. `last`: the width that a sweep ends at."""

    last: int = 0
    groups: list[Group] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    fault: Exception | None = None  # of the tester itself, which ended the search

    @property
    def findings(self) -> list[Finding]:
        """What was found, by group."""
        return [group.finding for group in self.groups if group.finding]


def search(
    candidate: Provider, known: Sequence[Case], request: Request | None, deadline: float, strict: bool = False
) -> Searched:
    """Shrinks what is known to fail, then searches every other operator and dtype of the request until `deadline` (of
    `time.monotonic`), or until a failure was found in each. Ctrl-C ends it and leaves what was found.

    `known`: cases that failed, one of each operator and dtype at most. `strict`: bits that depend on the batch are a failure.
    """
    began = time.monotonic()
    outcome = Searched(request.most if request else 0)
    try:
        with one_thread():
            for case in known[:MOST_SHRUNK]:
                outcome.groups.append(Group(case.op, case.dtype, finding=shrunk(case, candidate, strict=strict)))
            if request:
                differing = {(case.op, case.dtype) for case in known}
                _search(candidate, request, differing, outcome.groups, deadline)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except GivenUp:
        pass  # what was found until then is kept
    except Exception as error:  # what the session's cases and the search found so far is kept
        outcome.fault = error
    outcome.seconds = time.monotonic() - began
    return outcome


def shrunk(case: Case, candidate: Provider, *, strict: bool = False, seconds: float = SHRINK_SECONDS) -> Finding | None:
    """A case that fails, as small as it gets while it fails for the same kind of reason, and, if it does now, tells the trivial
    mutants from the operator: a right kernel passes it with evidence. None where it does not fail again.
    """
    function = candidate.function(case.op, case.contract)
    start = Example.of(case)
    reasons = attempt.reasons(start, function, again=True, batch_invariant=strict)
    if not reasons:
        return None
    kind, evident = kinds.first(reasons), not _survivors(start)

    def failing(example: Example) -> list[str]:
        """The reasons, where there are any of that kind."""
        found = attempt.reasons(example, function, again=kind in kinds.STABILITY, batch_invariant=strict)
        return found if found and kinds.first(found) == kind else []

    def fails(example: Example) -> bool:
        return bool(failing(example)) and not (evident and _survivors(example))

    def suspects(examples: Sequence[Example]) -> list[int]:
        """Those with a reason of any kind."""
        return [place for place, reasons in enumerate(attempt.reasons_of_all(examples, function)) if reasons]

    together = isinstance(candidate, Isolated) and kind not in kinds.STABILITY
    end = shrink(start, fails, time.monotonic() + seconds, suspects if together else None)
    smallest = end.example.case
    if end.example is not start:
        smallest = replace(smallest, given=Values.of(end.example.inputs()), origin="search")
    return Finding(smallest, tuple(failing(end.example) or reasons), case, end.calls, end.whole)


def _survivors(example: Example) -> list[str]:
    return survivors(example.case.operator, example.inputs(), example.case.contract) if example.case.rows else []


@contextmanager
def one_thread() -> Iterator[None]:
    """The tensors are small: threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _search(candidate: Provider, request: Request, known: set[tuple[str, str]], groups: list[Group], deadline: float) -> None:
    """Gives each operator and dtype that nothing is known of a slice of time in turn; adds them to the groups."""
    lanes: list[_Lane] = []
    for op, dtype in product(request.contracts, request.dtypes):
        if (op, dtype) not in known and request.regimes_of(op) and _has(candidate, request, op):
            groups.append(Group(op, dtype))
            lanes.append(_Lane(groups[-1], request, candidate, len(lanes)))
    while lanes and time.monotonic() < deadline:
        for lane in list(lanes):
            if not lane.run(min(deadline, time.monotonic() + SLICE_SECONDS)):
                lanes.remove(lane)


def _has(candidate: Provider, request: Request, op: str) -> bool:
    try:
        candidate.function(op, request.contracts[op])
    except (ValueError, Unavailable):
        return False
    return True


class _Lane:
    """A group's two strategies, each of which goes on where its last slice ended."""

    def __init__(self, group: Group, request: Request, candidate: Provider, turn: int) -> None:
        self._group, self._candidate = group, candidate
        self._sweep = sweep(request, group.op, group.dtype)
        self._combinations = Combinations(request, group.op, group.dtype)
        self._turn = turn  # not all of them combine in the same round
        self._together = 1  # widths in one turn

    def run(self, until: float) -> bool:
        """One slice. Whether there is more to search: False once a failure was found."""
        self._turn += 1
        if self._turn % (SWEEPS + 1):
            self._swept_on(until)
        else:
            self._group.combined += self._combinations.run(self._fails, until)
        return self._group.finding is None

    def _swept_on(self, until: float) -> None:
        """Sweeps on, several widths in one turn where the candidate is in another process: as many as are called in no time."""
        while time.monotonic() < until:
            cases, began = list(islice(self._sweep, self._together)), time.monotonic()
            self._group.swept += len(cases)
            if self._first_that_fails(cases):
                return
            if isinstance(self._candidate, Isolated):
                quick = time.monotonic() - began < TURN_SECONDS
                self._together = min(2 * self._together, TOGETHER) if quick else 1

    def _fails(self, case: Case) -> bool:
        return self._first_that_fails([case])

    def _first_that_fails(self, cases: Sequence[Case]) -> bool:
        """Whether one of the cases, all of one contract, fails; the first that does is then the group's finding, shrunk."""
        if isinstance(self._candidate, Isolated):
            self._candidate.check_ahead(cases)
        taken = [case for case in cases if self._candidate.check(case) is None]
        if not taken:
            return False
        function = self._candidate.function(taken[0].op, taken[0].contract)
        for case, reasons in zip(taken, attempt.reasons_of_all([Example.of(case) for case in taken], function), strict=True):
            if reasons:
                self._group.finding = shrunk(case, self._candidate)
            if self._group.finding:
                return True
        return False

"""Runs entries over their cases, in the one pool, and keeps for each which checks found it."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch

from difftest import interrupts
from difftest.cases.case import Case
from difftest.mutants.cases import Options, default_cases, further_cases, inputs_of
from difftest.mutants.checks import checks_of
from difftest.mutants.corpora import CORPORA, Corpus
from difftest.mutants.entry import Entry
from difftest.mutants.published import Witness
from difftest.run import check, pool
from difftest.run.call import call
from reference.providers import Provider
from reference.providers.protocol import missing_device

MOST_CRASHES = 1_000  # an entry that takes its process down is found: the others go on


@dataclass(frozen=True, slots=True)
class Asked:
    """Which entries, by corpus and name, over which seeds, with which defaults of `difftest`."""

    entries: Sequence[tuple[str, str]]
    seeds: Sequence[int]
    defaults: Options
    workers: int = 0
    time_budget: float | None = None


@dataclass(slots=True)
class Found:
    """What an entry's cases showed.

    `caught`: check -> cases of the default run in which it spoke; `caught_beyond`: the same of the cases that need the entry's
    own options. `cases`, `calls`: run and made. `first`: where and in what words it was first found. `seeds_missed`: the seeds
    whose cases all said that it conforms. `not_run`: why no case was, if none was. `on_cases`, `on_its_own`: another project ->
    whether its comparison catches the entry on the default run's cases, and on inputs of its own.
    """

    corpus: str
    name: str
    cases: int = 0
    calls: int = 0
    caught: Counter[str] = field(default_factory=Counter)
    caught_beyond: Counter[str] = field(default_factory=Counter)
    first: str = ""
    seeds_missed: list[int] = field(default_factory=list)
    not_run: str = ""
    on_cases: dict[str, bool] = field(default_factory=dict)
    on_its_own: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        """Whether it was found, in the default run or with its own options, at every seed."""
        return bool(self.caught or self.caught_beyond) and not self.seeds_missed


@dataclass(slots=True)
class Outcome:
    """What a run's entries showed, in their order, however far it came."""

    found: list[Found] = field(default_factory=list)
    left: int = 0
    interrupted: bool = False
    seconds: float = 0.0


def entry_of(corpus: str, name: str) -> Entry:
    """The entry by its corpus and name."""
    return next(entry for entry in CORPORA[corpus].entries() if entry.name == name)


def run_entry(corpus: Corpus, entry: Entry, asked: Asked) -> Found:
    """Runs an entry's cases, seed by seed: the default run's; where those miss it, those that its own options add.

    Every case is called again and in parts, as those of a candidate in a file are. Other projects' comparisons see the first
    seed.
    """
    found, began = Found(corpus.name, entry.name), time.monotonic()
    found.not_run = (missing_device(torch.device(entry.device)) or "") if not entry.equivalent else "equivalent"
    if found.not_run:
        return found
    if corpus.runs_itself:
        import_module(corpus.module).run_entry(entry, found)
        found.seconds = time.monotonic() - began
        return found
    provider = entry.provider()
    promised = bool(getattr(provider, "batch_invariant", False))
    witness = Witness.of(entry.ops[0])
    for seed in asked.seeds:
        default = _Run(corpus, provider, found, found.caught, promised, witness if seed == asked.seeds[0] else None)
        further = _Run(corpus, provider, found, found.caught_beyond, promised or "--batch-invariant" in entry.beyond)
        seen = default.finds(default_cases(entry, asked.defaults, seed), seed)
        if not seen and not further.finds(further_cases(entry, asked.defaults, seed), seed):
            found.seeds_missed.append(seed)
    witness.visit(provider.function(entry.ops[0]), entry.contract)
    found.on_cases, found.on_its_own = witness.on_cases, witness.on_its_own
    found.seconds = time.monotonic() - began
    return found


@dataclass(slots=True)
class _Run:
    """An entry's provider on cases: counts in `found` and `caught` what they show."""

    corpus: Corpus
    provider: Provider
    found: Found
    caught: Counter[str]
    batch_invariant: bool
    witness: Witness | None = None

    def finds(self, cases: Sequence[Case], seed: int) -> bool:
        """Whether the cases find the entry. Once enough have, the others are for other projects' comparisons alone."""
        killed = 0
        for case in cases:
            function = check.function_of(case, self.provider)
            if isinstance(function, str):
                continue
            if killed >= self.corpus.enough:
                self._show(case, function)
                continue
            reasons = self._reasons(case, _counted(function, self.found))
            if reasons:
                killed += 1
                self.found.first = self.found.first or f"{case} {case.regime}, seed {seed}: {reasons[0]}"
        return bool(killed)

    def _reasons(self, case: Case, function: Callable) -> tuple[str, ...]:
        seen = check.observe(case, function, inputs_of(case), again=True, batch_invariant=self.batch_invariant)
        self.found.cases += 1
        self.caught.update(checks_of(seen.reasons))
        if self.witness:
            self.witness.see(case, seen.outputs)
        return seen.reasons

    def _show(self, case: Case, function: Callable) -> None:
        if self.witness and self.witness.waits_for(case):
            self.witness.see(case, call(case, function, inputs_of(case)).outputs)


def _counted(function: Callable, found: Found) -> Callable:
    """The function, its calls counted."""

    @functools.wraps(function)
    def counted(*arguments: Any, **named: Any) -> Any:
        found.calls += 1
        return function(*arguments, **named)

    return counted


class Entries:
    """A pool's work: an entry by its corpus and name."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def begin(self, group: int) -> Callable[[tuple[str, str]], Found]:
        """What runs an entry."""
        return self._run

    def name(self, task: tuple[str, str]) -> str:
        """The entry."""
        return " ".join(task)

    def _run(self, task: tuple[str, str]) -> Found:
        return run_entry(CORPORA[task[0]], entry_of(*task), self._asked)


def run(asked: Asked, on_entry: Callable[[Found], None] = lambda found: None) -> Outcome:
    """Runs the entries; calls `on_entry` as each ends. Ctrl-C, SIGTERM and the time budget end it early."""
    start = time.monotonic()
    deadline = float("inf") if asked.time_budget is None else time.time() + asked.time_budget
    by_task: dict[tuple[str, str], Found] = {}
    outcome = Outcome()

    def keep(group: int, task: tuple[str, str], answer: Any) -> None:
        by_task[task] = _died(task, answer) if isinstance(answer, pool.Lost) else answer
        on_entry(by_task[task])

    try:
        with interrupts.on_sigterm_too():
            limits = pool.Limits(deadline, MOST_CRASHES)
            groups = [[task] for task in sorted(asked.entries, key=lambda task: entry_of(*task).ops)]  # which share cases
            pool.run(Entries(asked), groups, keep, processes=asked.workers, limits=limits)
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.found = [by_task[task] for task in asked.entries if task in by_task]
    outcome.left = len(asked.entries) - len(by_task)
    outcome.seconds = time.monotonic() - start
    return outcome


def _died(task: tuple[str, str], lost: pool.Lost) -> Found:
    found = Found(*task, first=lost.why)
    found.caught["raised"] += 1
    return found

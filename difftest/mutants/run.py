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
from difftest.mutants import verdicts
from difftest.mutants.cases import Options, default_cases, further_cases, inputs_of
from difftest.mutants.checks import checks_of
from difftest.mutants.corpora import CORPORA, Corpus
from difftest.mutants.entry import Entry
from difftest.mutants.found import Found, Task, together
from difftest.mutants.journal import Journal
from difftest.mutants.published import Witness
from difftest.run import check, on_ray, pool, stability
from difftest.run.call import call
from reference.providers import Provider
from reference.providers.protocol import missing_device

MOST_TOGETHER = 12  # entries of a group at least: each new one draws the cases anew, which takes about as long as an entry
MOST_CRASHES = 1_000  # an entry that takes its process down is found: the others go on
GRACE = 2.0  # seconds past the time budget for what runs: an entry of the field takes one, one made by machine up to a minute


@dataclass(frozen=True, slots=True)
class Asked:
    """Which entries, by corpus and name, over which seeds, with which defaults of `difftest`."""

    entries: Sequence[tuple[str, str]]
    seeds: Sequence[int]
    defaults: Options
    workers: int = 0
    time_budget: float | None = None
    on: str = ""  # a cluster, in place of workers here


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


def run_entry(corpus: Corpus, entry: Entry, asked: Asked, seed: int) -> Found:
    """Runs an entry's cases at one seed: the default run's; where those miss it, those that its own options add.

    Every case is called again and in parts, as those of a candidate in a file are; of an honest entry, from the second seed on,
    as many as of a named provider. Other projects' comparisons see the first seed.
    """
    found, began, first = Found(corpus.name, entry.name), time.monotonic(), seed == asked.seeds[0]
    found.not_run = (missing_device(torch.device(entry.device)) or "") if not entry.equivalent else "equivalent"
    if found.not_run:
        return found
    if corpus.runs_itself:
        import_module(corpus.module).run_entry(entry, found)
        found.seconds = time.monotonic() - began
        return found
    provider = entry.provider()
    promised = bool(getattr(provider, "batch_invariant", False))
    witness = Witness.of(entry.ops[0]) if first else None
    default = _Run(corpus, provider, found, found.caught, promised, witness, first or not corpus.honest)
    further = _Run(corpus, provider, found, found.caught_beyond, promised or "--batch-invariant" in entry.beyond)
    seen = default.finds(default_cases(entry, asked.defaults, seed), seed)
    if not seen and not further.finds(further_cases(entry, asked.defaults, seed), seed):
        found.seeds_missed.append(seed)
    if witness:
        witness.visit(provider.function(entry.ops[0]), entry.contract)
        found.on_cases, found.on_its_own = witness.on_cases, witness.on_its_own
    found.seconds = time.monotonic() - began
    return found


@dataclass(slots=True)
class _Run:
    """An entry's provider on cases: counts in `found` and `caught` what they show. `all_again`: every case is called again."""

    corpus: Corpus
    provider: Provider
    found: Found
    caught: Counter[str]
    batch_invariant: bool
    witness: Witness | None = None
    all_again: bool = True

    def finds(self, cases: Sequence[Case], seed: int) -> bool:
        """Whether the cases find the entry. Once enough have, the others are for other projects' comparisons alone."""
        killed = 0
        again = range(len(cases)) if self.all_again else stability.chosen(cases)
        for index, case in enumerate(cases):
            function = check.function_of(case, self.provider)
            if isinstance(function, str | check.Performer):  # an entry is a function of this process
                continue
            if killed >= self.corpus.enough:
                self._show(case, function)
                continue
            reasons = self._reasons(case, _counted(function, self.found), index in again)
            if reasons:
                killed += 1
                self.found.first = self.found.first or f"{case} {case.regime}, seed {seed}: {reasons[0]}"
        return bool(killed)

    def _reasons(self, case: Case, function: Callable, again: bool) -> tuple[str, ...]:
        seen = check.observe(
            case, function, inputs_of(case), again=again, batch_invariant=self.batch_invariant, judged=verdicts.judged
        )
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
    """A pool's work: an entry, by its corpus and name, at a seed."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def begin(self, group: int) -> Callable[[Task], Found]:
        """What runs an entry."""
        verdicts.forget()
        return self._run

    def name(self, task: Task) -> str:
        """The entry and the seed."""
        return " ".join(map(str, task))

    def _run(self, task: Task) -> Found:
        corpus, name, seed = task
        return run_entry(CORPORA[corpus], entry_of(corpus, name), self._asked, seed)


def run(asked: Asked, on_entry: Callable[[Found], None] = lambda found: None, journal: Journal | None = None) -> Outcome:
    """Runs the entries; calls `on_entry` as each ends, at its last seed. What a journal holds is not run again; the rest is added
    to it as it ends. Ctrl-C, SIGTERM and the time budget end the run early; the budget some seconds after it at the latest, what
    runs then is left.
    """
    start = time.monotonic()
    deadline = float("inf") if asked.time_budget is None else time.time() + asked.time_budget
    by_entry: dict[tuple[str, str], dict[int, Found]] = {}
    outcome = Outcome()

    def keep(task: Task, found: Found) -> None:
        corpus, name, seed = task
        seen = by_entry.setdefault((corpus, name), {})
        seen[seed] = found
        if len(seen) == len(_seeds(corpus, asked)):
            on_entry(together(seen))

    def report(group: int, task: Task, answer: Any) -> None:
        corpus, name, seed = task
        found = _died(corpus, name, answer) if isinstance(answer, pool.Lost) else answer
        if journal:
            journal.keep(seed, found)
        keep(task, found)

    try:
        with interrupts.on_sigterm_too():
            groups = _groups(asked)
            earlier = journal.done if journal else {}
            for task in (task for group in groups for task in group if task in earlier):
                keep(task, earlier[task])
            groups = [[task for task in group if task not in earlier] for group in groups]
            limits = pool.Limits(deadline, MOST_CRASHES, grace=GRACE)
            on_ray.run(Entries(asked), groups, report, on=asked.on, processes=asked.workers, limits=limits)
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.found = [together(by_entry[entry]) for entry in asked.entries if entry in by_entry]
    outcome.left = sum(len(by_entry.get(entry, ())) < len(_seeds(entry[0], asked)) for entry in asked.entries)
    outcome.seconds = time.monotonic() - start
    return outcome


def _seeds(corpus: str, asked: Asked) -> Sequence[int]:
    return asked.seeds[:1] if CORPORA[corpus].runs_itself else asked.seeds


def _groups(asked: Asked) -> list[list[Task]]:
    """Entries of one operator at one seed together: they share the cases, and what is right of them. The largest groups first,
    and none so large that a worker is left without.
    """
    found: dict[object, list[Task]] = {}
    for corpus, name in sorted(asked.entries, key=lambda each: entry_of(*each).contract):
        for seed in _seeds(corpus, asked):
            alone = CORPORA[corpus].runs_itself and name
            found.setdefault((entry_of(corpus, name).ops, seed, alone), []).append((corpus, name, seed))
    total = sum(map(len, found.values()))
    most = max(MOST_TOGETHER, -(-total // (4 * max(1, asked.workers))))
    parts = [tasks[k : k + most] for tasks in found.values() for k in range(0, len(tasks), most)]
    return sorted(parts, key=len, reverse=True)


def _died(corpus: str, name: str, lost: pool.Lost) -> Found:
    found = Found(corpus, name, first=lost.why)
    found.caught["raised"] += 1
    return found

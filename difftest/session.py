"""Runs a plan's cases, here or in worker processes, and keeps what was found whatever stops it.

Imports this package's cases, candidates and run. Workers share a queue of cases and have a pipe each for what they find.
"""

from __future__ import annotations

import itertools
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

import torch

from difftest import interrupts, workers
from difftest.candidates import is_file, resolve
from difftest.cases import Case
from difftest.run import Result, Skip, run_case
from reference.operators import OPERATORS
from reference.providers import Provider

DIED = "the process died in the middle of the call"  # of a case that ended its worker
MOST_CRASHES = 8  # of a run's workers; each costs a new process, and what the last of them leaves is given up

Found = list[Result | Skip]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which cases, which candidate, against whom; how many processes (0: this one); when to stop starting new cases.

    `again`: the indexes of the cases that are called again, and in parts. `batch_invariant`: bits that depend on the part
    are a difference.
    """

    cases: Sequence[Case]
    candidate: str
    against: Sequence[str]
    workers: int = 0
    time_budget: float | None = None  # seconds
    again: frozenset[int] = frozenset()
    batch_invariant: bool = False

    def run(self, index: int, candidate: Provider, references: Sequence[Provider]) -> Found:
        """One case by its index."""
        again = index in self.again
        return run_case(self.cases[index], candidate, references, again=again, batch_invariant=self.batch_invariant)


@dataclass(slots=True)
class Outcome:
    """What a plan's cases showed, in the plan's order, however far the run came."""

    results: list[Result] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    not_run: int = 0
    interrupted: bool = False
    seconds: float = 0.0


def default_workers(candidate: str, device: str) -> int:
    """One process a core, at most four, for the Numba kernels on the CPU: compiling them takes most of the time.

    None on a GPU, which one process fills, and none for other candidates, which run faster than a worker starts.
    """
    if device != "cpu" or is_file(candidate) or candidate != "numba":
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, cores) if cores > 1 else 0


def run(plan: Plan, on_case: Callable[[Case], None] = lambda case: None) -> Outcome:
    """Runs the plan; calls `on_case` as each case ends. Ctrl-C or SIGTERM ends the run early and leaves what was found."""
    start = time.monotonic()
    deadline = float("inf") if plan.time_budget is None else time.time() + plan.time_budget
    found: dict[int, Found] = {}

    def keep(index: int, what: Found) -> None:
        found[index] = what
        on_case(plan.cases[index])

    outcome = Outcome()
    try:
        with interrupts.on_sigterm_too():
            (_run_in_workers if plan.workers else _run_here)(plan, deadline, keep)
    except KeyboardInterrupt:
        outcome.interrupted = True
    for index in sorted(found):
        for what in found[index]:
            if isinstance(what, Result):
                outcome.results.append(what)
            else:
                outcome.skips.append(what)
    outcome.not_run = len(plan.cases) - len(found)
    outcome.seconds = time.monotonic() - start
    return outcome


def _run_here(plan: Plan, deadline: float, keep: Callable[[int, Found], None]) -> None:
    candidate = resolve(plan.candidate)
    references = [resolve(name, "--against") for name in plan.against]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small: threads that wait for each other cost more than they bring
    try:
        for index in range(len(plan.cases)):
            if time.time() >= deadline:
                return
            keep(index, plan.run(index, candidate, references))
    finally:
        torch.set_num_threads(threads)


def _run_in_workers(plan: Plan, deadline: float, keep: Callable[[int, Found], None]) -> None:
    """Hands out the cases group by group, a group's cases sharing their compiled kernels: one dtype of an operator, and of its
    Gemma form, which differs in a number alone.

    A worker that a case takes down is followed by another, which goes on with the rest of the group.
    """
    workers.prepare()
    context = workers.context()
    tasks = context.Queue()
    groups: dict[tuple[str, str | None, str], list[int]] = {}
    for place, case in enumerate(plan.cases):
        operator = OPERATORS[case.op]
        groups.setdefault((operator.family, operator.activation, case.dtype), []).append(place)
    for group in groups.values():
        tasks.put(group)
    processes = {}
    busy: dict[Connection, int | None] = {}  # whom a worker tells -> the case it is in

    def start(first: list[int]) -> None:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(plan, deadline, first, tasks, sender, dict(os.environ)), daemon=True)
        process.start()
        sender.close()  # the worker has the only one now: where it dies, the pipe ends
        processes[receiver] = process
        busy[receiver] = None

    for _ in range(plan.workers):
        tasks.put(None)
    crashes = 0
    try:
        for _ in range(plan.workers):
            start([])
        while busy:
            for receiver in [each for each in wait(list(busy)) if isinstance(each, Connection)]:
                try:
                    index, what = receiver.recv()
                except EOFError:
                    index = busy.pop(receiver)
                    processes[receiver].join(5)
                    if index is not None:
                        keep(index, _died(plan, index, processes[receiver].exitcode))
                        crashes += 1
                        if crashes < MOST_CRASHES:
                            group = next(group for group in groups.values() if index in group)
                            start(group[group.index(index) + 1 :])
                    continue
                if index is None:
                    del busy[receiver]
                elif what is None:
                    busy[receiver] = index
                elif isinstance(what, str):
                    raise RuntimeError(f"the tester failed in {plan.cases[index]}:\n{what}")
                else:
                    keep(index, what)
                    busy[receiver] = None
    finally:
        tasks.cancel_join_thread()  # what nobody will take any more must not hold up the exit
        for process in processes.values():
            process.kill()
        for process in processes.values():
            process.join(5)


def _work(plan: Plan, deadline: float, first: list[int], tasks, results: Connection, environment: dict[str, str]) -> None:
    """A worker: the cases of `first`, then of the groups that it takes. Sends (index, None) as a case starts, (index, found) as
    it ends, at last two Nones.

    Through a pipe, which has a message before the next line runs: a case may end the process.
    """
    interrupts.left_to_the_parent()  # which kills the workers
    os.environ.update(environment)  # the server that this process was forked from may be older than a change
    torch.set_num_threads(1)
    candidate = resolve(plan.candidate)
    references = [resolve(name, "--against") for name in plan.against]
    for group in itertools.chain([first], iter(tasks.get, None)):
        for index in group:
            if time.time() >= deadline:
                break
            results.send((index, None))
            try:
                results.send((index, plan.run(index, candidate, references)))
            except Exception:  # the tester's own fault: the parent must hear of it
                results.send((index, traceback.format_exc()))
    results.send((None, None))


def _died(plan: Plan, index: int, exit_code: int | None) -> Found:
    reason = f"{DIED} (exit code {exit_code})"
    return [Result(plan.cases[index], plan.candidate, name, (reason,)) for name in plan.against]

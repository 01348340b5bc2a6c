"""All implementations, each in a process of its own: one that crashes takes nothing with it but the call it was in.

A kernel that faults destroys its process's CUDA context, and with it every later call; a fresh process goes on after
the call that crashed. Imports this package.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from difftest import interrupts
from difftest.candidates import resolve
from difftest.matrix.observe import Answer, Task, answer, tasks, work
from difftest.matrix.plan import Plan

MOST_CRASHES = 3  # of one implementation; what is left then is given up
SILENCE = 300.0  # seconds for one call: FlashInfer compiles its CUDA norms with nvcc, for a minute and more


@dataclass(slots=True)
class Observed:
    """What a matrix's calls gave. `unavailable`: name -> why nothing of it can run here. `answers`: name -> task ->
    answer. `not_run`: tasks that were never started, by name."""

    versions: dict[str, str] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    answers: dict[str, dict[Task, Answer]] = field(default_factory=dict)
    not_run: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    seconds_by_name: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False


def run(plan: Plan, folder: Path, on_answer: Callable[[str, Task], None] = lambda name, task: None) -> Observed:
    """Asks everything of everyone. Ctrl-C, SIGTERM and the time budget end it early and leave what was found."""
    start = time.monotonic()
    deadline = start + plan.time_budget if plan.time_budget else float("inf")
    observed = Observed()
    able = []
    for name in plan.names:
        provider = resolve(name)
        reason = provider.unavailable(torch.device(plan.device))
        observed.versions[name] = provider.version()
        if reason:
            observed.unavailable[name] = reason
        else:
            able.append(name)
            observed.answers[name] = {}
    todo = tasks(plan.cells, plan.widths)
    try:
        with interrupts.on_sigterm_too():
            (_in_processes if plan.jobs else _here)(plan, able, todo, folder, deadline, observed, on_answer)
    except KeyboardInterrupt:
        observed.interrupted = True
    observed.not_run = {name: len(todo) - len(observed.answers[name]) for name in able}
    observed.seconds = time.monotonic() - start
    return observed


def scratch() -> tempfile.TemporaryDirectory:
    """A folder for the outputs, removed when done with."""
    return tempfile.TemporaryDirectory(prefix="numba-kernels-matrix-")


def _here(plan, able, todo, folder, deadline, observed, on_answer) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in able:
            began = time.monotonic()
            own = folder / str(len(observed.seconds_by_name))
            own.mkdir()
            for index, task in enumerate(todo):
                if time.monotonic() >= deadline:
                    return
                observed.answers[name][task] = answer(resolve(name), task, plan.device, plan.seed, own / f"{index}.pt")
                on_answer(name, task)
            observed.seconds_by_name[name] = round(time.monotonic() - began, 2)
    finally:
        torch.set_num_threads(threads)


@dataclass(slots=True)
class _Worker:
    name: str
    folder: Path
    todo: list[tuple[int, Task]]
    pipe: Connection
    process: BaseProcess
    current: int | None = None
    crashes: int = 0
    began: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)


def _in_processes(plan, able, todo, folder, deadline, observed, on_answer) -> None:
    context = multiprocessing.get_context("spawn")  # a process with torch's threads, or CUDA, in it may not fork
    waiting = list(reversed(able))
    busy: list[_Worker] = []

    def start(name: str, own: Path, left: list[tuple[int, Task]]) -> tuple[Connection, BaseProcess]:
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(name, left, plan.device, plan.seed, str(own), theirs))
        process.start()
        theirs.close()
        return mine, process

    try:
        while (waiting or busy) and time.monotonic() < deadline:
            while waiting and len(busy) < plan.jobs:
                name = waiting.pop()
                own = folder / str(len(waiting))
                own.mkdir()
                left = list(enumerate(todo))
                busy.append(_Worker(name, own, left, *start(name, own, left)))
            ready = wait([worker.pipe for worker in busy], timeout=0.2)
            for worker in list(busy):
                silent = time.monotonic() - worker.heard > SILENCE
                if worker.pipe not in ready and not silent:
                    continue
                if not silent and _hear(worker, observed, on_answer):
                    continue
                # The pipe is closed, or nothing has come for too long.
                left = _after(worker, observed, silent)
                busy.remove(worker)
                if left:
                    again = _Worker(worker.name, worker.folder, left, *start(worker.name, worker.folder, left))
                    again.crashes, again.began = worker.crashes, worker.began
                    busy.append(again)
                else:
                    observed.seconds_by_name[worker.name] = round(time.monotonic() - worker.began, 2)
    finally:
        for worker in busy:
            _end(worker.process)


def _hear(worker: _Worker, observed: Observed, on_answer: Callable[[str, Task], None]) -> bool:
    """Takes one message. False when there will be no more."""
    try:
        index, said = worker.pipe.recv()
    except (EOFError, OSError):
        return False
    worker.heard = time.monotonic()
    if said is None:
        worker.current = index
        return True
    task = dict(worker.todo)[index]
    observed.answers[worker.name][task] = said
    worker.current = None
    on_answer(worker.name, task)
    return True


def _after(worker: _Worker, observed: Observed, silent: bool) -> list[tuple[int, Task]]:
    """A worker has ended: notes the call it died in, and gives what is left to do. Nothing after too many crashes."""
    if silent:
        _end(worker.process)
    worker.process.join(10)
    answers = observed.answers[worker.name]
    left = [(index, task) for index, task in worker.todo if task not in answers]
    if not left:
        return []
    reason = f"no answer in {SILENCE:g} s" if silent else f"the process died (exit code {worker.process.exitcode})"
    worker.crashes += 1
    if worker.current is not None:
        answers[dict(worker.todo)[worker.current]] = {"failed": f"{reason} in this call"}
    elif not silent:
        answers[left[0][1]] = {"failed": f"{reason} before its first call"}
    left = [(index, task) for index, task in left if task not in answers]
    if worker.crashes >= MOST_CRASHES:
        for _, task in left:
            answers[task] = {"failed": f"given up after {worker.crashes} crashes"}
        return []
    return left


def _end(process: BaseProcess) -> None:
    process.kill()
    process.join(5)

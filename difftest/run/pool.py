"""The one pool of workers: tasks in groups, each task isolated from the crash of another.

Workers are forked from a server that has imported what they need, so they start at once. A process with torch's threads, or
CUDA, in it may not fork; the server has neither. Importing this is fast: the server starts before the command imports torch.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from difftest import interrupts
from difftest.errors import LackingError
from difftest.run import allocator

# What a worker imports, some seconds of it. A module that can't be imported is left for the worker to complain of.
NEEDS = (
    "difftest.run.session",
    "difftest.providers.numba",
    "numba_kernels.emulator",
    "numba_kernels.runtime.host",
    "reference.providers",
)
# Libraries that start a thread for each core when they are imported start none with these.
STARTED_AGAIN = 40  # times that a process is started whose server is gone
UNKNOWN = 255  # the exit code that the standard library gives a process whose server is gone
BEGUN_AGAIN = 4  # times that a task is whose process was killed: the next takes seconds to start, and may be killed meanwhile
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Task = Any  # picklable


class Work(Protocol):
    """What a worker does; picklable."""

    def begin(self, group: int) -> Callable[[Task], Any]:
        """Called in a worker's process ahead of each group, by its index; what does a task of it and returns the answer."""

    def name(self, task: Task) -> str:
        """What to call a task in an error."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A task that has no answer: the process died (`exit_code`), or nothing came from it for `silent` seconds.

    `started`: it was the task in which that happened; else it happened before the group's first. `given_up`: after how many
    crashes it was not tried any more, 0 where it was.
    """

    exit_code: int | None = None
    silent: float | None = None
    started: bool = True
    given_up: int = 0

    @property
    def why(self) -> str:
        """What happened to the process."""
        if self.silent is not None:
            return f"no answer in {self.silent:g} s"
        return f"the process died (exit code {self.exit_code})"


@dataclass(frozen=True, slots=True)
class Limits:
    """When a pool stops. `deadline`: no task starts after this time (`time.time`); `grace`: so many seconds later what runs in
    other processes is ended, without an answer.

    `crashes`: with this many no process follows a dead one, for a group alone where groups have `own_process`, else for all.
    `silence`: seconds without an answer after which a process is ended as if it had died; None: it may take any time.
    """

    deadline: float = float("inf")
    crashes: int = 8
    silence: float | None = None
    grace: float = float("inf")

    @property
    def end(self) -> float:
        """When nothing runs any more."""
        return self.deadline + self.grace


Report = Callable[[int, Task, Any], None]
"""Is told a group's index, a task of it, and the answer or `Lost`, in the order in which they come."""


def run(
    work: Work,
    groups: Sequence[Sequence[Task]],
    report: Report,
    *,
    processes: int,
    own_process: bool = False,
    limits: Limits | None = None,
    ended: Callable[[int, float], None] = lambda group, seconds: None,
) -> None:
    """Does every task, a group's one after the other in one process, `processes` groups at a time; 0: in this process.

    A process takes group after group; with `own_process` each group has one to itself. A task that takes its process down is
    `Lost`; another process goes on with the rest of the group. `ended` is told each group that was done and its seconds. What
    a task raises in a worker is RuntimeError here. Ctrl-C ends the workers and is passed on.
    """
    limits = limits or Limits()
    if processes:
        _Pool(work, [list(group) for group in groups], report, own_process, limits, ended).run(processes)
    else:
        _run_here(work, groups, report, limits, ended)


def context() -> ForkServerContext | SpawnContext:
    """How workers are started: forked from the server, or anew (``spawn``) where the system has no fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(list(NEEDS))
    return found


def prepare() -> None:
    """Starts the server, which then imports on another core what this process has yet to import too. Idempotent."""
    if context().get_start_method() != "forkserver":
        return
    with without_threads(), interrupts.ignored():  # Ctrl-C is this process's to handle
        forkserver.ensure_running()


@contextmanager
def without_threads() -> Iterator[None]:
    """What is imported in the block, here or in a process that is started in it, makes no threads for linear algebra."""
    kept = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def start(target: Callable, *arguments: Any) -> BaseProcess:
    """A process of the server's. Where the server is killed meanwhile, another's.

    Ctrl-C and SIGTERM wait until it has all that it is handed: with half of that it would print a traceback.
    """
    for _ in range(STARTED_AGAIN):
        prepare()
        process = context().Process(target=target, args=arguments)
        with suppress(EOFError, ConnectionError), interrupts.held_back():
            process.start()
            return process
        time.sleep(0.05)  # until the system knows that it is gone
    raise LackingError("no worker can be started: the process that starts them is gone each time")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_here(
    work: Work, groups: Sequence[Sequence[Task]], report: Report, limits: Limits, ended: Callable[[int, float], None]
) -> None:
    import torch

    allocator.keep_freed()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small: threads that wait for each other cost more than they bring
    try:
        for group, tasks in enumerate(groups):
            began = time.monotonic()
            do = work.begin(group)
            for task in tasks:
                if time.time() >= limits.deadline:
                    return
                report(group, task, do(task))
            ended(group, time.monotonic() - began)
    finally:
        torch.set_num_threads(threads)


@dataclass(slots=True)
class _Worker:
    """A process, the group it is in and what it has yet to do of it. `current`: the task that it is in, as a list of one."""

    process: BaseProcess
    pipe: Connection
    group: int = -1
    left: list[Task] = field(default_factory=list)
    current: list[Task] = field(default_factory=list)
    began: float = 0.0
    heard: float = 0.0


@dataclass(slots=True)
class _Pool:
    """`waiting`: groups that no process has begun; a worker's pipe -> the worker, while it is busy."""

    work: Work
    groups: list[list[Task]]
    report: Report
    own_process: bool
    limits: Limits
    ended: Callable[[int, float], None]
    waiting: list[int] = field(default_factory=list)
    started: list[BaseProcess] = field(default_factory=list)
    busy: dict[Connection, _Worker] = field(default_factory=dict)
    crashes: dict[int, int] = field(default_factory=dict)  # by group, or all under -1
    killed: Counter[tuple[int, int]] = field(default_factory=Counter)  # by group and tasks left of it: how often the process was

    def run(self, processes: int) -> None:
        prepare()
        self.waiting = [group for group, tasks in enumerate(self.groups) if tasks]
        looks_up = self.limits.silence is not None or self.limits.end < float("inf")
        try:
            while (self.busy or self._may_begin()) and time.time() < self.limits.end:
                while len(self.busy) < processes and self._may_begin():
                    self._begin(self._start(), self.waiting.pop(0))
                ready = wait(list(self.busy), timeout=0.2 if looks_up else None)
                for worker in list(self.busy.values()):
                    if worker.pipe in ready:
                        self._hear(worker)
                    elif self.limits.silence is not None and time.monotonic() - worker.heard > self.limits.silence:
                        self._lose(worker, silent=True)
        finally:
            for process in self.started:
                process.kill()
            for process in self.started:
                process.join(5)

    def _may_begin(self) -> bool:
        """Whether a group is waiting that there is still time and trust for."""
        tried = not self.own_process and self.crashes.get(-1, 0) >= self.limits.crashes
        return bool(self.waiting) and not tried and time.time() < self.limits.deadline

    def _start(self) -> _Worker:
        mine, theirs = context().Pipe()
        with interrupts.held_back():  # or nobody would end it
            process = start(_work, self.work, self.limits.deadline, theirs, dict(os.environ))
            self.started.append(process)
        theirs.close()  # the worker has the only one now: where it dies, the pipe ends
        worker = _Worker(process, mine)
        self.busy[mine] = worker
        return worker

    def _begin(self, worker: _Worker, group: int, left: list[Task] | None = None) -> None:
        """Hands a group over, or what is left of it."""
        if left is None:
            left, worker.began = list(self.groups[group]), time.monotonic()
        worker.group, worker.left, worker.heard = group, left, time.monotonic()
        with suppress(OSError):  # it is dead already, which the end of its pipe will say
            worker.pipe.send((group, left))

    def _hear(self, worker: _Worker) -> None:
        """Takes one message: a task starts, a task's answer, a fault of the tester's own, or the group's end."""
        try:
            kind, said = worker.pipe.recv()
        except (EOFError, OSError):
            self._lose(worker, silent=False)
            return
        worker.heard = time.monotonic()
        if kind == "starts":
            worker.current = [worker.left[0]]
        elif kind == "answers":
            worker.current = []
            self.report(worker.group, worker.left.pop(0), said)
        elif kind == "fails":
            raise RuntimeError(f"the tester failed in {self.work.name(worker.left[0])}:\n{said}")
        else:
            if not worker.left:
                self.ended(worker.group, time.monotonic() - worker.began)
            if not self.own_process and self.waiting and time.time() < self.limits.deadline:
                self._begin(worker, self.waiting.pop(0))
            else:
                self._end(worker)

    def _lose(self, worker: _Worker, *, silent: bool) -> None:
        """A process is gone, or is ended for its silence: the task that it was in is lost, another process does the rest."""
        if silent:
            worker.process.kill()
        worker.process.join(10)
        self._end(worker)
        lost = Lost(worker.process.exitcode, self.limits.silence if silent else None, bool(worker.current))
        if not worker.left:
            return
        if self._killed_from_outside(worker, lost):
            self._begin_again(worker)
            return
        self.report(worker.group, worker.left.pop(0), lost)
        owner = worker.group if self.own_process else -1
        self.crashes[owner] = self.crashes.get(owner, 0) + 1
        if not worker.left:
            self.ended(worker.group, time.monotonic() - worker.began)
        elif self.crashes[owner] < self.limits.crashes:
            self._begin_again(worker)
        elif self.own_process:
            for task in worker.left:
                self.report(worker.group, task, Lost(lost.exit_code, lost.silent, False, self.crashes[owner]))
            self.ended(worker.group, time.monotonic() - worker.began)

    def _killed_from_outside(self, worker: _Worker, lost: Lost) -> bool:
        """Whether the process was killed in the task, or on the way to it, by a person or a system that lacks memory, for all
        that is known, or nobody knows how it ended; the task is done again, so many times."""
        task = worker.group, len(worker.left)
        if lost.exit_code not in (-signal.SIGKILL, UNKNOWN) or lost.silent is not None:
            return False
        self.killed[task] += 1
        return self.killed[task] <= BEGUN_AGAIN

    def _begin_again(self, worker: _Worker) -> None:
        """Another process goes on with what is left of a lost one's group."""
        again = self._start()
        again.began = worker.began
        self._begin(again, worker.group, worker.left)

    def _end(self, worker: _Worker) -> None:
        del self.busy[worker.pipe]
        worker.pipe.close()


def _work(work: Work, deadline: float, pipe: Connection, environment: dict[str, str]) -> None:
    """A worker: says when a task starts and gives its answer, group after group, until its pipe is closed.

    Through a pipe, which has a message before the next line runs: a task may end the process.
    """
    interrupts.left_to_the_parent()  # which kills the workers
    os.environ.update(environment)  # the server that this process was forked from may be older than a change
    allocator.keep_freed()
    import torch

    torch.set_num_threads(1)
    gc.freeze()  # what is imported stays: no collection has to look through it
    while True:
        try:
            group, tasks = pipe.recv()
        except EOFError:
            return
        do = work.begin(group)
        for task in tasks:
            if time.time() >= deadline:
                break
            pipe.send(("starts", None))
            try:
                pipe.send(("answers", do(task)))
            except Exception:  # the tester's own fault: the parent must hear of it
                pipe.send(("fails", traceback.format_exc()))
        pipe.send(("ends", None))

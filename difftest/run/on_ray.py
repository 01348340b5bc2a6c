"""The pool's other engine: the same tasks on the nodes of a Ray cluster (extra `ray`), answers as they come.

A node that is lost loses what ran on it, which Ray runs again elsewhere. A task that takes its process down is tried once more by
itself, then `Lost`. Every node has this package, and the candidate's file under the same path.
"""

from __future__ import annotations

import logging
import os
import signal
import time
import uuid
from collections.abc import Sequence
from typing import Any

from difftest import interrupts
from difftest.errors import LackingError
from difftest.run import pool
from difftest.run.pool import Limits, Lost, Report, Task, Work

CHUNK = 8  # tasks of a group in one of Ray's: their answers come together, and are lost together
RETRIES = 3  # of a chunk whose node or process is lost
LOCAL = "ray"  # the cluster of RAY_ADDRESS, else one on this machine

_works: dict[str, Work] = {}  # in a process of Ray's: looked up once, for all its chunks


def run(work: Work, groups: Sequence[Sequence[Task]], report: Report, *, on: str, processes: int, limits: Limits) -> None:
    """As of `pool.run`, which it is without `on`; else on the cluster there: `ray`, or `ray://ADDRESS`. LackingError where there
    is none."""
    if not on:
        pool.run(work, groups, report, processes=processes, limits=limits)
        return
    ray = _connected(on)
    try:
        _Run(ray, work, groups, report, limits).run()
    finally:
        with interrupts.ignored():
            ray.shutdown()


def _connected(on: str) -> Any:
    try:
        import ray
    except ImportError:
        raise LackingError("--on: needs ray, which is not installed: pip install 'numba-kernels[ray]'") from None
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a task without a GPU sees the machine as it is
    try:
        ray.init(
            address=_address(on),
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False if _starts(on) else None,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise LackingError(f"--on: no cluster at {on}: {' '.join(str(error).split())[:300]}") from None
    return ray


def _starts(on: str) -> bool:
    """Whether a cluster is to be started here."""
    return on == LOCAL and not os.environ.get("RAY_ADDRESS")


def _address(on: str) -> str | None:
    return on if on != LOCAL else None if _starts(on) else "auto"


class _Run:
    """`waiting`: a reference of Ray's -> the group and the tasks that it does."""

    def __init__(
        self,
        ray: Any,
        work: Work,
        groups: Sequence[Sequence[Task]],
        report: Report,
        limits: Limits,
    ) -> None:
        self._ray, self._report, self._limits, self._groups = ray, report, limits, groups
        self._work, self._name = ray.put(work), uuid.uuid4().hex
        gpus = 1 if getattr(work, "needs_gpu", False) else 0
        self._do = ray.remote(_do).options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)
        self._waiting: dict[Any, tuple[int, list[Task]]] = {}

    def run(self) -> None:
        """Hands everything out, and takes answers until nothing is left, or no time. Ctrl-C ends what runs, and is passed on."""
        for group, tasks in enumerate(self._groups):
            for start in range(0, len(tasks), CHUNK):
                self._begin(group, list(tasks[start : start + CHUNK]))
        try:
            while self._waiting:
                left = self._limits.end - time.time()
                timeout = max(0.0, left) if left < float("inf") else None
                ready, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=timeout)
                if not ready:
                    break
                for reference in ready:
                    self._take(reference)
        finally:
            for reference in self._waiting:
                self._ray.cancel(reference, force=True)

    def _begin(self, group: int, tasks: list[Task]) -> None:
        self._waiting[self._do.remote(self._work, self._name, self._limits.deadline, group, tasks)] = group, tasks

    def _take(self, reference: Any) -> None:
        group, tasks = self._waiting.pop(reference)
        try:
            answers = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # the tester's own fault
            raise RuntimeError(f"the tester failed on a node:\n{error}") from None
        except self._ray.exceptions.RayError:
            if len(tasks) > 1:
                for task in tasks:
                    self._begin(group, [task])
                return
            answers = [(tasks[0], Lost(-signal.SIGKILL))]
        for task, answer in answers:
            self._report(group, task, answer)


def _do(work: Work, name: str, deadline: float, group: int, tasks: list[Task]) -> list[tuple[Task, Any]]:
    """On a node: a chunk's answers; none for tasks that the deadline leaves out."""
    import torch

    torch.set_num_threads(1)
    if name not in _works:
        _works.clear()
        _works[name] = work
    do = _works[name].begin(group)
    return [(task, do(task)) for task in tasks if time.time() < deadline]

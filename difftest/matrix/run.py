"""All implementations, each in a process of its own: one that crashes takes nothing with it but the call it was in.

A kernel that faults destroys its process's CUDA context, and with it every later call; a fresh process goes on after
the call that crashed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from difftest import interrupts
from difftest.cases.case import Case
from difftest.matrix.observe import Answer, Answers, Task, tasks
from difftest.matrix.request import Request
from difftest.providers.resolve import resolve
from difftest.run import pool
from difftest.run.pool import Limits, Lost
from reference.providers import Provider

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


def run(asked: Request, folder: Path, on_answer: Callable[[str, Task], None] = lambda name, task: None) -> Observed:
    """Asks everything of everyone. Ctrl-C, SIGTERM and the time budget end it early and leave what was found."""
    start = time.monotonic()
    observed = Observed()
    for name in asked.names:
        provider = resolve(name)
        reason = _unavailable(provider, asked.cases)
        observed.versions[name] = provider.version()
        if reason:
            observed.unavailable[name] = reason
        else:
            observed.answers[name] = {}
    able = list(observed.answers)
    todo = tasks(asked.cases, asked.widths)

    def keep(group: int, index: int, said: Any) -> None:
        observed.answers[able[group]][todo[index]] = {"failed": _lost(said)} if isinstance(said, Lost) else said
        on_answer(able[group], todo[index])

    def ended(group: int, seconds: float) -> None:
        observed.seconds_by_name[able[group]] = round(seconds, 2)

    limits = Limits(time.time() + asked.time_budget if asked.time_budget else float("inf"), MOST_CRASHES, SILENCE)
    try:
        with interrupts.on_sigterm_too():
            pool.run(
                Answers(able, todo, asked.seed, folder),
                [range(len(todo))] * len(able),
                keep,
                processes=asked.jobs,
                own_process=True,
                limits=limits,
                ended=ended,
            )
    except KeyboardInterrupt:
        observed.interrupted = True
    observed.not_run = {name: len(todo) - len(observed.answers[name]) for name in able}
    observed.seconds = time.monotonic() - start
    return observed


def scratch() -> tempfile.TemporaryDirectory:
    """A folder for the outputs, removed when done with."""
    return tempfile.TemporaryDirectory(prefix="numba-kernels-matrix-")


def _unavailable(provider: Provider, cases: Sequence[Case]) -> str | None:
    """The one reason for which the provider can run no case of the operators that it has; None where there isn't one."""
    reasons = {provider.check(case) for case in cases if provider.claims(case.op)}
    return reasons.pop() if len(reasons) == 1 else None


def _lost(said: Lost) -> str:
    """Why a call has no answer."""
    if said.given_up:
        return f"given up after {said.given_up} crashes"
    return f"{said.why} {'in this call' if said.started or said.silent else 'before its first call'}"

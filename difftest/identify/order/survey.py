"""The orders of several implementations, each in a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from difftest.cases.case import Case
from difftest.identify.order.fingerprint import Order, order
from difftest.providers.resolve import resolve
from difftest.run import pool
from difftest.run.pool import Limits, Lost
from reference.formats import FORMATS
from reference.providers import Unavailable

SILENCE = 300.0  # seconds for one width: a library may compile for a minute


@dataclass(slots=True)
class Survey:
    """The work of a pool of which each group is one implementation's cases, by index. A case's rows are those of its calls."""

    names: Sequence[str]
    cases: Sequence[Case]
    batches: Sequence[int]
    seed: int
    checked: int

    def begin(self, group: int) -> Callable[[int], dict[str, Any]]:
        """The orders of the implementation of that index."""
        provider = resolve(self.names[group])

        def do(index: int) -> dict[str, Any]:
            case, began = self.cases[index], time.monotonic()
            reason = provider.check(case)
            if reason:
                return {"skipped": reason}
            try:
                function = provider.function(case.op)
            except (Unavailable, ValueError) as error:
                return {"skipped": str(error)}
            if "torch._dynamo" in sys.modules:
                torch.compiler.reset()  # beyond eight variants of one source it gives up, and runs eager code
            try:
                found = self._order(case, function).document()
            except Exception as error:  # another's kernel may leave a device that no call works on
                return {"skipped": f"raised {type(error).__name__}: {error}"}
            del found["tree"]  # which may be long; `identity` tells it
            return {**found, "seconds": round(time.monotonic() - began, 2)}

        return do

    def _order(self, case: Case, function: Callable) -> Order:
        dtype, rows = FORMATS[case.dtype].torch, case.rows
        more: dict[str, Any] = {"batches": self.batches, "seed": self.seed, "checked": self.checked}
        return order(case.operator, function, dtype, case.width, case.device, rows=rows, **more)

    def name(self, task: int) -> str:
        """The case."""
        return str(self.cases[task])


def run(
    survey: Survey, on_answer: Callable[[dict[str, Any]], None], *, processes: int, seconds: float = float("inf")
) -> list[dict[str, Any]]:
    """One entry an implementation and case: `op`, `dtype`, `width`, `provider`, and its order's document or why there is none.

    After `seconds` no further case is begun. `on_answer` is told each entry as it comes.
    """
    found: dict[tuple[int, int], dict[str, Any]] = {}

    def entry(group: int, index: int, said: dict[str, Any]) -> dict[str, Any]:
        case = survey.cases[index]
        head = {"op": case.op, "dtype": case.dtype, "width": case.width, "provider": survey.names[group]}
        return {**head, **said}

    def keep(group: int, index: int, said: Any) -> None:
        found[group, index] = entry(group, index, {"skipped": said.why} if isinstance(said, Lost) else said)
        on_answer(found[group, index])

    tasks = range(len(survey.cases))
    limits = Limits(time.time() + seconds, 2, SILENCE)
    pool.run(survey, [tasks] * len(survey.names), keep, processes=processes, own_process=True, limits=limits)
    late = {"skipped": "not begun before the time was up"}
    return [found.get((group, k)) or entry(group, k, late) for k in tasks for group in range(len(survey.names))]


def versions(names: Sequence[str]) -> dict[str, str]:
    """The version of each implementation."""
    return {name: resolve(name).version() for name in names}

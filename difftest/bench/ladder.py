"""What each step of the ladder of norm kernels is worth: all steps at three shapes, timed in turns like any providers.

Every step is held to the operator's contract twice: the buffers that were timed, as everyone's are, and the rows of a call of its
own by the tester's verdict. How its bits differ from those of the step before is counted too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

import torch

from difftest.bench import check, measure
from difftest.bench.buffers import BufferSets
from difftest.bench.plan import Point
from difftest.bench.timer import Timer
from difftest.ulp import distance
from difftest.verdict import judge
from reference.contracts import Contract, contract

SCHEMA = "numba-kernels/ladder/1"
# A decode step, a prefill, and rows that no block can hold in its registers.
POINTS = tuple(Point("fused_add_rmsnorm", "bf16", *shape) for shape in ((16, 4096), (4096, 4096), (8192, 65536)))


class Step(Protocol):
    """A kernel of the ladder: `name`, and in a line `why` it is the next one."""

    name: str
    why: str

    def make(self, rows: int, width: int, dtype: str) -> Callable[..., Any]:
        """`f(input, residual, weight, eps)`, in place, for torch tensors. ValueError where it can't take the width."""


def steps() -> Sequence[Step]:
    """The steps in their order."""
    return import_module("numba_kernels.kernels.ladder").ladder


class _Entrant:
    """A step at one point, as a provider."""

    in_place = True

    def __init__(self, step: Step, where: Point) -> None:
        self.name = step.name
        self._step, self._where = step, where

    def claims(self, op: str) -> Contract:
        return contract(op)

    def unavailable(self, device: torch.device) -> str | None:
        try:
            self.native(self._where.op)
        except ValueError as error:
            return str(error)
        return None

    def refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        return None

    def native(self, op: str) -> Callable[..., Any]:
        return self._step.make(self._where.rows, self._where.width, self._where.dtype)

    function = native


def point(where: Point, ladder: Sequence[Step], clock: Timer, device: torch.device) -> dict[str, Any]:
    """The measurement of one shape: the benchmark's row of each step, with why it is there, its verdict, and what it changed."""
    entrants = [_Entrant(step, where) for step in ladder]
    result = measure.point(where, entrants, clock, device)  # type: ignore[arg-type]
    sets = BufferSets(where, 1, device)
    which = check.sample(where.rows).to(device)
    inputs = {name: t if name == "weight" else t[which].clone() for name, t in sets.first_values().items()}
    before: torch.Tensor | None = None
    for step, entrant, row in zip(ladder, entrants, result["results"], strict=True):
        row["why"] = step.why
        if row["status"] == "skipped":
            continue
        sets.refresh()
        returned = entrant.native(where.op)(*sets.arguments(0))
        outputs = {name: t[which] for name, t in measure.outputs_of(where, returned, sets.tensors(0)).items()}
        found = judge(where.op, inputs, outputs, contract(where.op))
        if not found.conforms:
            row |= {"status": "wrong", "reason": "; ".join(found.reasons)}
        row["verdict"] = "conforms" if found.conforms else "differs"
        row["from_the_step_before"] = _apart(outputs["output"], before)
        before = outputs["output"].clone()
    return result


def _apart(output: torch.Tensor, before: torch.Tensor | None) -> dict[str, int] | None:
    """Elements of the sampled rows, those with other bits than the step before gave, and the largest distance in ULP."""
    if before is None:
        return None
    ulp = distance(output, before).ulp.abs()
    return {"elements": ulp.numel(), "mismatches": int(ulp.count_nonzero()), "max_ulp": int(ulp.max())}


def wrong(document: dict[str, Any]) -> list[str]:
    """A sentence for each step whose result is wrong."""
    return [
        f"{row['provider']} at {point_['rows']} x {point_['width']}: {row['reason']}"
        for point_ in document["points"]
        for row in point_["results"]
        if row["status"] == "wrong"
    ]


def skipped(document: dict[str, Any]) -> list[str]:
    """A sentence for each step that can't take a shape."""
    return [
        f"{row['provider']} at {point_['rows']} x {point_['width']}: {row['reason']}"
        for point_ in document["points"]
        for row in point_["results"]
        if row["status"] == "skipped"
    ]

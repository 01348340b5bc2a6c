"""What each step of the ladder of norm kernels is worth: all steps at three shapes, timed in turns as providers are.

Every step is held to the operator's contract twice: the buffers that were timed, as everyone's are, and the rows of a call of its
own by the tester's verdict. How far its bits are from those of the step before is counted too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import torch

from difftest.bench import check, measure
from difftest.bench.buffers import BufferSets
from difftest.bench.shapes import timed
from difftest.bench.tables import number
from difftest.bench.timer import Timer
from difftest.cases.case import Case
from difftest.report.table import Entry, Styled, Table
from difftest.run.call import collect
from difftest.verdict.judge import judge
from difftest.verdict.ulp import distance
from reference.contracts import Contract, contract

SCHEMA = "numba-kernels/ladder/1"
PARTS = ("points",)
NOISE = 1.01  # times nearer than this differ by chance
SHAPES = ((16, 4096), (4096, 4096), (8192, 65536))  # a decode step, a prefill, and rows that no block holds in its registers


class Step(Protocol):
    """A kernel of the ladder: `name`, and in a line `why` it is the next one."""

    name: str
    why: str

    def make(self, rows: int, width: int, dtype: str) -> Callable[..., Any]:
        """`f(input, residual, weight, eps)`, in place, for torch tensors. ValueError where it can't take the width."""


def steps() -> Sequence[Step]:
    """The steps in their order."""
    return import_module("numba_kernels.kernels.ladder").STEPS


def cases(device: str) -> list[Case]:
    """The calls that are timed."""
    return [timed("fused_add_rmsnorm", "bf16", *shape, device) for shape in SHAPES]


class _Entrant:
    """A step at one point, as a provider."""

    in_place = True

    def __init__(self, step: Step, case: Case) -> None:
        self.name = step.name
        self._step, self._case = step, case

    def claims(self, op: str) -> Contract | None:
        return contract(op)

    def check(self, case: Case) -> str | None:
        try:
            self.native(case.op)
        except ValueError as error:
            return str(error)
        return None

    def native(self, op: str) -> Callable[..., Any]:
        return self._step.make(self._case.rows, self._case.width, self._case.dtype)

    def function(self, op: str, contract: Contract | None = None) -> Callable[..., Any]:
        return self.native(op)

    def version(self) -> str:
        return "source tree"


def point(case: Case, ladder: Sequence[Step], clock: Timer, device: torch.device) -> dict[str, Any]:
    """The measurement of one shape: the benchmark's row of each step, with why it is there, its verdict, and what it changed."""
    entrants = [_Entrant(step, case) for step in ladder]
    result = measure.point(case, entrants, clock, device)  # type: ignore[arg-type]
    sets = BufferSets(case, 1, device)
    inputs = check.sampled(case, sets.first_values())
    before: torch.Tensor | None = None
    for step, entrant, row in zip(ladder, entrants, result["results"], strict=True):
        row.pop("pdl", None)  # asked of providers by name; a step says it itself
        row["why"] = step.why
        if row["status"] == "skipped":
            continue
        sets.refresh()
        returned = entrant.native(case.op)(*sets.arguments(0))
        outputs = check.sampled(case, collect(case.operator, sets.tensors(0), returned))
        found = judge(case.op, inputs, outputs, case.contract)
        row["verdict"] = "conforms" if found.conforms else "differs"
        if not found.conforms:
            row |= {"status": "wrong", "reason": "; ".join(found.reasons)}
        row["from_the_step_before"] = None if before is None else _apart(outputs["output"], before)
        before = outputs["output"]
    return result


def _apart(output: torch.Tensor, before: torch.Tensor) -> dict[str, int]:
    """Elements of the sampled rows, those with other bits than the step before gave, and the largest distance in ULP."""
    ulp = distance(output, before).ulp.abs()
    return {"elements": ulp.numel(), "mismatches": int(ulp.count_nonzero()), "max_ulp": int(ulp.max())}


def table(document: Mapping[str, Any]) -> Table:
    """A step a row: its microseconds at every shape, the fastest strong, and what it adds."""
    points = document["points"]
    times: dict[str, list[Entry]] = {}
    why: dict[str, str] = {}
    for place, each in enumerate(points):
        right = [row["us"]["median"] for row in each["results"] if row["status"] == "ok"]
        for row in each["results"]:
            mine = times.setdefault(row["provider"], ["-"] * len(points))
            why[row["provider"]] = row["why"]
            if row["status"] == "ok":
                us = row["us"]["median"]
                fastest = us <= NOISE * min(right)
                mine[place] = Styled(number(us), strong=fastest, style="bold green" if fastest else "")
    heads = ("step", *(f"{each['rows']} x {each['width']}" for each in points), "what it adds")
    rows = tuple((name, *entries, why[name]) for name, entries in times.items())
    return Table("fused_add_rmsnorm, bf16: microseconds of every step of the ladder", heads, rows, left=("what it adds",))


def remarks(document: Mapping[str, Any], status: str) -> Iterator[str]:
    """A sentence for each step that was `wrong` or `skipped` at a shape."""
    for each in document["points"]:
        for row in each["results"]:
            if row["status"] == status:
                yield f"{row['provider']}, {each['rows']} x {each['width']}: {row['reason']}"

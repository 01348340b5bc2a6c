"""The kernel that tuning chooses for a case, its addresses, and which of a point's measured variants it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, replace
from typing import Any

import torch

from difftest.bench.shapes import timed
from difftest.cases.case import Case
from numba_kernels import tuning
from numba_kernels.kernels.config import Config, GatedOperation, Kernel, NormConfig, NormOperation
from numba_kernels.plans import GatedPlan, NormPlan, Plan

EPS_BITS = 0x358637BD  # fp32 1e-6


def plan_of(case: Case) -> Plan:
    """The call as the operators plan it, contiguous."""
    op, rows, width, storage = case.operator, case.rows, case.width, case.dtype
    if op.activation:
        return GatedPlan(GatedOperation(op.activation, storage), rows, width, op.row_length(op.rows[0], width), width)
    operation = NormOperation(bool(op.mutated), storage, storage, rounds_sum=False, rounds_norm=False, weight_bias=op.weight_bias)
    return NormPlan(operation, rows, width, width, width, width, EPS_BITS)


def choice(case: Case, target: tuning.Target) -> Kernel:
    """The kernel that the case's call gets on `target`, at aligned addresses."""
    plan = plan_of(case)
    return plan.kernel(target, (0,) * (2 if isinstance(plan, GatedPlan) else 4), target.pdl)


def addresses(case: Case, tensors: Mapping[str, torch.Tensor], output: torch.Tensor) -> tuple[int, ...]:
    """A call's buffers in the order of its kernel's parameters; `output`: where the result goes of what is not in place."""
    op, x = case.operator, tensors["input"].data_ptr()
    if op.activation:
        return x, output.data_ptr()
    if op.mutated:
        return x, tensors["residual"].data_ptr(), tensors["weight"].data_ptr(), x
    return x, x, tensors["weight"].data_ptr(), output.data_ptr()


def measured_choice(point: Mapping[str, Any], target: tuning.Target) -> str | None:
    """The variant of a measured point that the call gets today; None where none is. A form that goes by the number of rows is the
    one that always does what it does with so many; what an older result does not name was as it is by default.
    """
    rows = point["rows"]
    config = choice(timed(point["op"], point["dtype"], rows, point["width"]), target).config
    own, today = point["variants"][point["chosen"]]["config"], _decided(config, asdict(config), rows)
    return next((name for name, each in point["variants"].items() if _decided(config, own | each["config"], rows) == today), None)


def _decided(like: Config, given: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """A configuration of that kind as it is with so many rows, whole."""
    whole = {each.name: each.default for each in fields(like) if each.default is not MISSING} | dict(given)
    whole |= {name: tuple(value) for name, value in whole.items() if isinstance(value, list)}
    if isinstance(like, NormConfig) and whole["release"] == "rows":
        whole |= {name: getattr(replace(like, **whole).decided(rows), name) for name in ("release", "held_back")}
    return whole

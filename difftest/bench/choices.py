"""The kernel that tuning chooses for a case, and which of a point's measured variants that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from difftest.bench.shapes import timed
from difftest.cases.case import Case
from numba_kernels import tuning
from numba_kernels.kernels.config import GatedOperation, Kernel, NormOperation
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


def measured_choice(point: Mapping[str, Any], target: tuning.Target) -> str | None:
    """The variant of a measured point that the call gets today; None where none is."""
    today = asdict(choice(timed(point["op"], point["dtype"], point["rows"], point["width"]), target).config)
    own = point["variants"][point["chosen"]]["config"]
    return next((name for name, each in point["variants"].items() if {**own, **each["config"]} == today), None)

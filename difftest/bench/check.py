"""After the clock: do the timed buffers hold what the provider's own contract says?

Not a verdict, which `difftest` gives: a guard against timing a kernel that computes something else, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from difftest.cases.case import Case
from difftest.verdict.ulp import distance
from reference.arithmetic import evaluate
from reference.contracts import Contract

# Two fp32 evaluations of one contract differ by rounding order, approximate rsqrt and exp, and FMA: one step of a 16-bit dtype,
# two where an inner rounding falls the other way; in fp32 a few steps of the sum and the root, and of a scaled exponent.
MOST_ULP = {"fp16": 2, "bf16": 2, "fp32": 64}
# The libraries' gelu is 1 + erf or 1 + tanh in fp32, whose negative tail cancels: an error up to a few 2^-24 of gate * up.
CANCELLED = 2.0**-21
SAMPLE = 64  # rows: enough to see a wrong kernel, few enough for the widest


def sample(rows: int) -> torch.Tensor:
    """Which rows are checked: all, or `SAMPLE` spread from the first to the last."""
    return torch.linspace(0, rows - 1, min(rows, SAMPLE), dtype=torch.float64).round().long()


def sampled(case: Case, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The sampled rows of every tensor by name, a vector whole; copies."""
    which, vectors = sample(case.rows), case.operator.vectors
    return {name: t.clone() if name in vectors else t[which.to(t.device)] for name, t in tensors.items()}


def wrong(
    case: Case, inputs: Mapping[str, torch.Tensor], actual: Mapping[str, torch.Tensor], contract: Contract
) -> tuple[dict[str, int], str | None]:
    """The largest distance of each output in ULP, and why the result is wrong, or None.

    `inputs` are the first values, `actual` the whole outputs by name. The new residual has to be exact.
    """
    op, taken = case.operator, sampled(case, inputs)
    want = evaluate(case.op, taken, contract)
    which = sample(case.rows)
    largest: dict[str, int] = {}
    reason = None
    for name, reference in want.items():
        got = actual[name].reshape(case.rows, case.width)[which.to(actual[name].device)]
        if got.dtype != reference.dtype:
            return largest, f"{name} is {got.dtype}, not {reference.dtype}"
        if not torch.isfinite(got).all():
            return largest, f"{name} is not finite"
        ulp = distance(got, reference).ulp.abs()
        largest[name] = int(ulp.max())
        beyond = ulp > (0 if name == "residual" else MOST_ULP[case.dtype])
        if op.activation:
            parts = op.split(taken)
            beyond &= (got.float() - reference.float()).abs() > CANCELLED * (parts["gate"].float() * parts["up"].float()).abs()
        if reason is None and beyond.any():
            reason = f"{name} is up to {largest[name]} ULP from {contract.code} in {int(beyond.sum())} sampled elements"
    return largest, reason

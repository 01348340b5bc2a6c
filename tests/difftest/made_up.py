"""An operator that is declared here: interleaved, clamped, with two parameters and a third S code; and candidates of it."""

import torch

from reference.operators import Operator, Parameter, Role, Tensor
from reference.operators.declaration import EVERY_OPERATION, FP32_MAX, Switch


def scaled_silu(A, gate, alpha):
    """gate * sigmoid(alpha * gate)."""
    return A.mul(gate, A.sigmoid(A.mul(gate, alpha)))


def limited(A, gate, up, c):
    """What gpt-oss computes of gate and up."""
    if c.rounds_every_operation:
        A = A.after_every_operation()
    limit = c.value("limit")
    gate, up = A.minimum(gate, limit), A.clamp(up, -limit, limit)
    activated = A.activate(scaled_silu, gate, c.value("alpha"))
    if c.rounds_activation:
        activated = A.load(A.store(activated))
    return (A.store(A.mul(activated, A.add(up, 1.0))),)


LIMITED = Operator(
    "limited_silu_and_mul",
    (Tensor("input", Role.PAIRS),),
    ("output",),
    limited,
    (EVERY_OPERATION,),
    "scaled_silu",
    parameters=(Parameter("alpha", 1.702, 2.0**-126, FP32_MAX, other=1.0), Parameter("limit", 7.0, 0.0, FP32_MAX, other=2.0)),
    switches=(Switch("gate", "limit"), Switch("up", "limit", -1.0), Switch("up", "limit")),
)


def limited_silu_and_mul(input, alpha, limit):
    """In fp32, rounded once."""
    gate, up = input[..., ::2].float().clamp(max=limit), input[..., 1::2].float().clamp(-limit, limit)
    return (gate * torch.sigmoid(alpha * gate) * (up + 1)).to(input.dtype)


def limited_silu_and_mul_eager(input, alpha, limit):
    """As torch computes it operation by operation."""
    gate, up = input[..., ::2].clamp(max=limit), input[..., 1::2].clamp(-limit, limit)
    return (up + 1) * (gate * torch.sigmoid(gate * alpha))


def limited_silu_and_mul_unlimited(input, alpha, limit):
    """Without the clamps."""
    return limited_silu_and_mul(input, alpha, float("inf"))


def limited_silu_and_mul_halves(input, alpha, limit):
    """With gate and up side by side."""
    gate, up = input.chunk(2, -1)
    return limited_silu_and_mul(LIMITED.assemble({"gate": gate, "up": up})["input"], alpha, limit)


def limited_silu_and_mul_deletes_nan(input, alpha, limit):
    """A clamp that gives the limit for NaN."""
    return limited_silu_and_mul(torch.where(input.isnan(), limit, input), alpha, limit)

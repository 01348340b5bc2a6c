"""The gated activations: declarations, and the formulas of the activations. What is proved of them: `reference.exact`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from reference.operators.declaration import (
    ACTIVATION,
    EVERY_OPERATION,
    FP32_MAX,
    Operator,
    Parameter,
    Role,
    SplitForm,
    Switch,
    Tensor,
)


def silu(A: Any, gate: Any) -> Any:
    """gate * sigmoid(gate)."""
    return A.mul(gate, A.sigmoid(gate))


def gelu(A: Any, gate: Any) -> Any:
    """gate * erfc(-gate / sqrt(2)) / 2: erfc keeps the negative tail that 1 + erf cancels away."""
    return A.mul(A.mul(gate, 0.5), A.erfc(A.mul(gate, -math.sqrt(0.5))))


def gelu_tanh(A: Any, gate: Any) -> Any:
    """gate * (1 + tanh(u)) / 2 = gate * sigmoid(2u), u = sqrt(2/pi) (gate + 0.044715 gate^3): no cancellation."""
    cubic = A.add(A.mul(A.mul(gate, gate), 0.044715), 1.0)
    return A.mul(gate, A.sigmoid(A.mul(A.mul(gate, 2.0 * math.sqrt(2.0 / math.pi)), cubic)))


def swish(A: Any, gate: Any, alpha: float) -> Any:
    """gate * sigmoid(alpha * gate)."""
    return A.mul(gate, A.sigmoid(A.mul(gate, alpha)))


def swigluoai(A: Any, gate: Any, up: Any, c: Any) -> tuple[Any]:
    """swish(min(gate, limit)) * (clamp(up, -limit, limit) + 1), with S as the contract says."""
    if c.rounds_every_operation:
        A = A.after_every_operation()
    limit = c.value("limit")
    gate, up = A.minimum(gate, limit), A.clamp(up, -limit, limit)
    activated = A.activate(swish, gate, c.value("alpha"))
    if c.rounds_activation:
        activated = A.load(A.store(activated))
    return (A.store(A.mul(activated, A.add(up, 1.0))),)


def act_and_mul(activation: Callable, A: Any, gate: Any, up: Any, c: Any) -> tuple[Any]:
    """act(gate) * up, with S as the contract says."""
    activated = A.activate(activation, gate)
    if c.rounds_activation:
        activated = A.load(A.store(activated))
    return (A.store(A.mul(activated, up)),)


SPLIT = (
    SplitForm(
        "split, fp32 activation kept",
        "S0",
        ((("gate",), ("activation fp32",)), (("activation fp32", "up"), ("output",))),
    ),
    SplitForm(
        "split, activation as stored",
        "S1",
        ((("gate",), ("activation",)), (("activation", "up"), ("output",))),
    ),
)


def _gated(activation: Callable) -> Operator:
    """`f(input) -> output`; input (..., 2 * width) T, gate first."""
    name = activation.__name__
    return Operator(
        f"{name}_and_mul",
        (Tensor("input", Role.HALVES),),
        ("output",),
        partial(act_and_mul, activation),
        (ACTIVATION,),
        name,
        split_forms=SPLIT,
    )


# `f(input, alpha, limit) -> output`; input (..., 2 * width) T, gate in the even columns. S2 is the eager form of gpt-oss
# (transformers 5.17, models/gpt_oss, GptOssExperts); vLLM's `swigluoai_and_mul` takes the same arguments.
SWIGLUOAI = Operator(
    "swigluoai_and_mul",
    (Tensor("input", Role.PAIRS),),
    ("output",),
    swigluoai,
    (EVERY_OPERATION,),
    swish.__name__,
    parameters=(
        Parameter("alpha", 1.702, 2.0**-126, FP32_MAX, other=1.0),
        # In neither 16-bit format, and 0.45 and 0.38 steps from the nearest: that S2 rounds it shows in the result in both. The
        # nearest in fp16 is a tie of bf16, so that a rounding through the other format shows as well.
        Parameter("limit", 7.0, 0.0, FP32_MAX, other=2.0 + 35 * 2.0**-12),
    ),
    switches=(Switch("gate", "limit"), Switch("up", "limit", -1.0), Switch("up", "limit")),
    split_forms=SPLIT,
)

# Source of the others' semantics: FlashInfer 0.7.2, `flashinfer/activation.py`.
GATED = (_gated(silu), _gated(gelu), _gated(gelu_tanh), SWIGLUOAI)

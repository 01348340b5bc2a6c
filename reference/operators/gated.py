"""The gated activations: declarations, and the formulas of the activations. What is proved of them: `reference.exact`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from reference.operators.declaration import ACTIVATION, Operator, Role, SplitForm, Tensor


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


# Source of the semantics: FlashInfer 0.7.2, `flashinfer/activation.py`.
GATED = (_gated(silu), _gated(gelu), _gated(gelu_tanh))

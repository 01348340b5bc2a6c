"""The operators by name: which tensors each takes, which it writes, and where its contracts can differ.

Pure data; imports nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

CODES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "add_norm": ("R0W0", "R1W0", "R0W1", "R1W1"),
        "norm": ("W0", "W1"),
        "gated": ("S0", "S1"),
    }
)


@dataclass(frozen=True, slots=True)
class Operator:
    """One mathematical function of rows.

    `family` decides the signature. With T the storage dtype and `width` the width of an *output* row:

    - `add_norm`: `f(input, residual, weight, eps) -> None`; input, residual (..., width) T; weight (width,) T or fp32.
      Both are overwritten: residual by `input + residual`, input by `rmsnorm(input + residual) * (weight + bias)`.
    - `norm`: `f(input, weight, eps) -> output`; `rmsnorm(input) * (weight + bias)`; nothing is written.
    - `gated`: `f(input) -> output`; input (..., 2 * width): `act(input[..., :width]) * input[..., width:]`.

    Source of the semantics: FlashInfer 0.7.2, `flashinfer/norm/__init__.py` and `flashinfer/activation.py`.
    """

    name: str
    family: str  # "add_norm" | "norm" | "gated"
    weight_bias: float = 0.0  # added to the weight; 1 in the Gemma forms
    activation: str | None = None  # None | "silu" | "gelu" | "gelu_tanh"

    @property
    def codes(self) -> tuple[str, ...]:
        """The rounding contracts that this operator tells apart."""
        return CODES[self.family]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tensors that go in."""
        return {"add_norm": ("input", "residual", "weight"), "norm": ("input", "weight"), "gated": ("input",)}[self.family]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the tensors that come out; an in-place operator's `output` lands in its `input`."""
        return ("output", "residual") if self.family == "add_norm" else ("output",)

    @property
    def mutated(self) -> tuple[str, ...]:
        """The inputs that the FlashInfer signature overwrites."""
        return ("input", "residual") if self.family == "add_norm" else ()


OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        op.name: op
        for op in (
            Operator("fused_add_rmsnorm", "add_norm"),
            Operator("gemma_fused_add_rmsnorm", "add_norm", weight_bias=1.0),
            Operator("rmsnorm", "norm"),
            Operator("gemma_rmsnorm", "norm", weight_bias=1.0),
            Operator("silu_and_mul", "gated", activation="silu"),
            Operator("gelu_and_mul", "gated", activation="gelu"),
            Operator("gelu_tanh_and_mul", "gated", activation="gelu_tanh"),
        )
    }
)


def operator(op: str | Operator) -> Operator:
    """The operator of that name, or the operator itself. An unknown name is a ValueError that lists the known ones."""
    if isinstance(op, Operator):
        return op
    try:
        return OPERATORS[op]
    except KeyError:
        raise ValueError(f"unknown operator {op!r}; known: {', '.join(OPERATORS)}") from None

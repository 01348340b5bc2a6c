"""What a kernel computes (its operation) and how (its config): two types, of which each kernel is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NormOperation:
    """``h = x (+ residual); y = h / sqrt(mean(h²) + eps) * (weight + bias)``."""

    adds_residual: bool
    storage: str  # of x, residual and output: "bf16", "fp16", "fp32"
    weight: str  # of the weight: the same, or "fp32"
    rounds_sum: bool  # R1: normalise the stored sum
    rounds_norm: bool  # W1: round before the weight
    weight_bias: float | None  # added to the weight in fp32: 1.0 for Gemma; None: the launch says (one kernel for both)


@dataclass(frozen=True, slots=True)
class GatedOperation:
    """``out = act(gate) * up`` for one of the activations in activations.py."""

    activation: str
    storage: str  # of input and output: "bf16", "fp16", "fp32"
    rounding: str = "S0"  # S0: once; S1: act(gate) too, before the multiply; S2: after every operation
    interleaved: bool = False  # gate and up alternate in a row: columns 0, 2, 4, … and 1, 3, 5, …; else they are its two halves


@dataclass(frozen=True, slots=True)
class GatedConfig:
    """How a gated kernel shares its work out. Sizes in elements of the output, ``access`` in bytes."""

    vector: int  # elements a thread handles together
    access: int  # of one load or store
    lanes: int  # threads side by side on one row, a power of two
    rows: int  # that a block works on side by side
    vectors: int  # of a lane, ``lanes`` vectors apart
    exact: bool  # the column blocks cover the row without remainder, and the row blocks the rows
    pdl: bool = False  # started by programmatic dependent launch

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.rows


@dataclass(frozen=True, slots=True)
class TextbookConfig:
    """The textbook kernels' one knob: threads of a block, a multiple of 32, 1024 at most."""

    threads: int = 256

"""The gated activations, as one table: ``out = active(gate) * factor(up)``, all in fp32.

Every form is free of cancellation, and no finite gate gives NaN: ``exp`` is taken of ``-|u|`` only, and gelu's ``1 + erf`` is
written as ``erfc``. A NaN goes through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32

from ..backend.arithmetic import absolute, exp2_approx, fma, reciprocal, reciprocal_approx
from .elementary import erfc, exp

LOG2_E = math.log2(math.e)
SQRT_HALF = math.sqrt(0.5)
TANH_SLOPE = 2.0 * math.sqrt(2.0 / math.pi)  # 0.5 (1 + tanh u) = sigmoid(2u), so the factor 2 is part of the constant
TANH_CUBIC = TANH_SLOPE * 0.044715


def _rest(value: float) -> float:
    """What fp32 leaves off ``value``."""
    return value - float(np.float32(value))


SQRT_HALF_REST, TANH_SLOPE_REST, TANH_CUBIC_REST = _rest(SQRT_HALF), _rest(TANH_SLOPE), _rest(TANH_CUBIC)


@dataclass(frozen=True, slots=True)
class Activation:
    """What becomes of a gate and of the ``up`` beside it, before the two are multiplied.

    Each field makes a device function ``f(value, first, second) -> value`` for a storage format's name and for ``rounded``, which
    goes around every operation but the last: it rounds to storage under S2, and gives its argument back otherwise. ``first`` and
    ``second`` are the launch's parameters, in the order of ``parameters``; where there are none, they are to be ignored.
    """

    make_active: Callable[[str, Callable[..., Any]], Callable[..., Any]]
    make_factor: Callable[[str, Callable[..., Any]], Callable[..., Any]] | None = None  # None: ``up`` itself
    parameters: tuple[str, ...] = ()  # scalars in fp32, two at most


def make_sigmoid(storage: str) -> Callable[..., Any]:
    """``sigmoid(u)`` in fp32. 16-bit storage can't show the error of the approximate exp and reciprocal; fp32 storage would."""
    if storage == "fp32":

        @cuda.jit(device=True, inline="always")
        def sigmoid(u):
            decay = exp(-absolute(u))
            share = reciprocal(float32(1.0) + decay)
            return share if u >= float32(0.0) else decay * share

    else:

        @cuda.jit(device=True, inline="always")
        def sigmoid(u):
            decay = exp2_approx(absolute(u) * float32(-LOG2_E))
            share = reciprocal_approx(float32(1.0) + decay)
            return share if u >= float32(0.0) else decay * share

    return sigmoid


def make_silu(storage: str, rounded: Callable[..., Any]) -> Callable[..., Any]:
    """``silu(g) = g * sigmoid(g)``."""
    sigmoid = make_sigmoid(storage)

    @cuda.jit(device=True, inline="always")
    def silu(g, first, second):
        return g * sigmoid(g)

    return silu


def make_gelu(storage: str, rounded: Callable[..., Any]) -> Callable[..., Any]:
    """``gelu(g) = g / 2 * (1 + erf(g / sqrt 2))``."""
    if storage != "fp32":

        @cuda.jit(device=True, inline="always")
        def gelu(g, first, second):
            return float32(0.5) * g * erfc(g * float32(-SQRT_HALF))

    else:

        @cuda.jit(device=True, inline="always")
        def gelu(g, first, second):
            # erfc magnifies the rounding of its argument u by up to 2u; what was rounded off goes in as a correction.
            u = g * float32(-SQRT_HALF)
            rest = fma(g, float32(-SQRT_HALF_REST), fma(g, float32(-SQRT_HALF), -u))
            half = float32(0.5) * g * erfc(u)
            return fma(half, float32(-2.0) * u * rest, half) if u > float32(0.0) and u < float32(20.0) else half

    return gelu


def make_gelu_tanh(storage: str, rounded: Callable[..., Any]) -> Callable[..., Any]:
    """``gelu_tanh(g) = g / 2 * (1 + tanh u) = g * sigmoid(2u)`` with ``u = sqrt(2 / pi) * (g + 0.044715 g³)``."""
    sigmoid = make_sigmoid(storage)
    if storage != "fp32":

        @cuda.jit(device=True, inline="always")
        def gelu_tanh(g, first, second):
            return g * sigmoid(g * fma(g * g, float32(TANH_CUBIC), float32(TANH_SLOPE)))

    else:

        @cuda.jit(device=True, inline="always")
        def gelu_tanh(g, first, second):
            # u = g (slope + cubic g²) as u + rest; sigmoid(u + rest) = sigmoid(u) (1 + rest (1 - sigmoid(u))).
            bounded = absolute(g) < float32(20.0)
            x = g if bounded else float32(0.0)
            square = x * x
            square_rest = fma(x, x, -square)
            term = square * float32(TANH_CUBIC)
            factor = float32(TANH_SLOPE) + term
            # What that sum rounded off: exact, as the larger of the two comes first.
            steep = term > float32(TANH_SLOPE)
            lost = (term - factor) + float32(TANH_SLOPE) if steep else (float32(TANH_SLOPE) - factor) + term
            factor_rest = lost + fma(square, float32(TANH_CUBIC), -term)
            constants_rest = fma(square, float32(TANH_CUBIC_REST), float32(TANH_SLOPE_REST))
            factor_rest += fma(square_rest, float32(TANH_CUBIC), constants_rest)
            u = x * factor
            rest = fma(x, factor_rest, fma(x, factor, -u))
            # Beyond it the sigmoid is 0 or 1 in fp32 on both sides of the switch: u is -603 at -20.
            share = sigmoid(u if bounded else g * float32(64.0))
            value = g * share
            return fma(value, rest * (float32(1.0) - share), value) if bounded else value

    return gelu_tanh


def make_swigluoai(storage: str, rounded: Callable[..., Any]) -> Callable[..., Any]:
    """``g * sigmoid(alpha * g)`` with ``g = min(gate, limit)``. A NaN is not greater than the limit, and goes through."""
    sigmoid = make_sigmoid(storage)

    @cuda.jit(device=True, inline="always")
    def swigluoai(gate, alpha, limit):
        g = rounded(limit if gate > limit else gate)
        return g * rounded(sigmoid(rounded(g * alpha)))

    return swigluoai


def make_swigluoai_factor(storage: str, rounded: Callable[..., Any]) -> Callable[..., Any]:
    """``clamp(up, -limit, limit) + 1``."""

    @cuda.jit(device=True, inline="always")
    def swigluoai_factor(up, alpha, limit):
        bounded = limit if up > limit else (-limit if up < -limit else up)
        return rounded(rounded(bounded) + float32(1.0))

    return swigluoai_factor


ACTIVATIONS = {
    "silu": Activation(make_silu),
    "gelu": Activation(make_gelu),
    "gelu_tanh": Activation(make_gelu_tanh),
    "swigluoai": Activation(make_swigluoai, make_swigluoai_factor, ("alpha", "limit")),
}


def activation_of(name: str) -> Activation:
    """The table's entry. Raises ValueError, with the names there are, for any other."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation: {name!r}; {', '.join(ACTIVATIONS)} are supported")
    return ACTIVATIONS[name]


def make_activation(name: str, storage: str, rounded: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``active(gate, first, second)`` and ``factor(up, first, second)`` of an activation."""
    chosen = activation_of(name)
    active = chosen.make_active(storage, rounded)
    return active, chosen.make_factor(storage, rounded) if chosen.make_factor else _make_unchanged()


def make_rounding(rounding: str, rounded: Callable[..., Any]) -> Callable[..., Any]:
    """``rounded(value)`` under S2, and what leaves every value as it is under S0 and S1."""
    if rounding == "S2":
        return rounded

    @cuda.jit(device=True, inline="always")
    def exactly(value):
        return value

    return exactly


def _make_unchanged() -> Callable[..., Any]:
    @cuda.jit(device=True, inline="always")
    def unchanged(up, first, second):
        return up

    return unchanged

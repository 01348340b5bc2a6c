"""The gated activations: ``out = act(gate) * up`` with ``gate`` the first half of a row of ``input`` and ``up`` the second.

No step of a row depends on another, so the grid is rows by column blocks. Every form is free of cancellation, and no finite gate
gives NaN: ``exp`` is taken of ``-|u|`` only, and gelu's ``1 + erf`` is written as ``erfc``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64

from . import intrinsics as nv

LOG2_E = math.log2(math.e)
SQRT_HALF = math.sqrt(0.5)
TANH_SLOPE = 2.0 * math.sqrt(2.0 / math.pi)  # 0.5 (1 + tanh u) = sigmoid(2u), so the factor 2 is part of the constant
TANH_CUBIC = TANH_SLOPE * 0.044715


def _rest(value: float) -> float:
    """What fp32 leaves off ``value``."""
    return value - float(np.float32(value))


SQRT_HALF_REST, TANH_SLOPE_REST, TANH_CUBIC_REST = _rest(SQRT_HALF), _rest(TANH_SLOPE), _rest(TANH_CUBIC)


@dataclass(frozen=True, slots=True)
class GatedSpec:
    """All that a gated kernel is compiled for. Sizes in elements, ``access`` in bytes."""

    activation: str  # "silu", "gelu", "gelu_tanh"
    storage: str  # "bf16", "fp16", "fp32"
    rounds_activation: bool  # S1: round act(gate) before the multiply
    leaf: int  # elements a thread handles together
    access: int
    lanes: int  # threads side by side on one row, a power of two
    rows: int  # of one block
    vectors: int  # leaves of one thread, ``lanes`` apart
    exact: bool  # the column blocks cover the row without remainder, and the row blocks the rows
    pdl: bool = False

    @property
    def threads(self) -> int:
        return self.lanes * self.rows


def _make_sigmoid(storage: str) -> Callable[..., Any]:
    """``sigmoid(u)`` in fp32. 16-bit storage can't show the error of the approximate exp and reciprocal; fp32 storage would."""
    if storage == "fp32":

        @cuda.jit(device=True, inline="always")
        def sigmoid(u):
            decay = math.exp(-nv.absolute(u))
            share = nv.reciprocal(float32(1.0) + decay)
            return share if u >= float32(0.0) else decay * share

    else:

        @cuda.jit(device=True, inline="always")
        def sigmoid(u):
            decay = nv.exp2_approx(nv.absolute(u) * float32(-LOG2_E))
            share = nv.reciprocal_approx(float32(1.0) + decay)
            return share if u >= float32(0.0) else decay * share

    return sigmoid


def _make_activation(name: str, storage: str) -> Callable[..., Any]:
    sigmoid = _make_sigmoid(storage)
    precise = storage == "fp32"
    if name == "silu":

        @cuda.jit(device=True, inline="always")
        def activation(g):
            return g * sigmoid(g)

    elif name == "gelu" and precise:

        @cuda.jit(device=True, inline="always")
        def activation(g):
            # erfc magnifies the rounding of its argument u by up to 2u; what was rounded off goes in as a correction.
            u = g * float32(-SQRT_HALF)
            rest = nv.fma(g, float32(-SQRT_HALF), -u) + g * float32(-SQRT_HALF_REST)
            half = float32(0.5) * g * math.erfc(u)
            return nv.fma(half, float32(-2.0) * u * rest, half) if u > float32(0.0) and u < float32(20.0) else half

    elif name == "gelu":

        @cuda.jit(device=True, inline="always")
        def activation(g):
            return float32(0.5) * g * math.erfc(g * float32(-SQRT_HALF))

    elif name == "gelu_tanh" and precise:

        @cuda.jit(device=True, inline="always")
        def activation(g):
            # u = g (slope + cubic g²) as u + rest; sigmoid(u + rest) = sigmoid(u) (1 + rest (1 - sigmoid(u))).
            bounded = nv.absolute(g) < float32(20.0)
            x = g if bounded else float32(0.0)
            square = x * x
            square_rest = nv.fma(x, x, -square)
            term = square * float32(TANH_CUBIC)
            factor = float32(TANH_SLOPE) + term
            # What that sum rounded off: exact, as the larger of the two comes first.
            steep = term > float32(TANH_SLOPE)
            lost = (term - factor) + float32(TANH_SLOPE) if steep else (float32(TANH_SLOPE) - factor) + term
            factor_rest = lost + nv.fma(square, float32(TANH_CUBIC), -term)
            factor_rest += float32(TANH_SLOPE_REST) + square * float32(TANH_CUBIC_REST) + square_rest * float32(TANH_CUBIC)
            u = x * factor
            rest = nv.fma(x, factor, -u) + x * factor_rest
            # Beyond it the sigmoid is 0 or 1 in fp32 on both sides of the switch: u is -603 at -20.
            share = sigmoid(u if bounded else g * float32(64.0))
            value = g * share
            return nv.fma(value, rest * (float32(1.0) - share), value) if bounded else value

    elif name == "gelu_tanh":

        @cuda.jit(device=True, inline="always")
        def activation(g):
            return g * sigmoid(g * nv.fma(g * g, float32(TANH_CUBIC), float32(TANH_SLOPE)))

    else:
        raise ValueError(f"activation: {name!r}; silu, gelu and gelu_tanh are supported")
    return activation


def make_gated_kernel(spec: GatedSpec) -> Callable[..., Any]:
    """The kernel for ``spec``: ``kernel(x, out, x_stride, out_stride, rows, width)``.

    Buffers are addresses (GPU) or 1-D word arrays (CPU); strides, in elements, are between rows; ``width`` is the output's.
    The grid is (column blocks, row blocks); a launch with fewer row blocks than rows need goes round again.
    """
    storage = nv.FORMATS[spec.storage]
    load, store = nv.make_load(storage, spec.leaf, spec.access), nv.make_store(storage, spec.leaf, spec.access)
    widen, narrow = nv.make_widen(storage, spec.leaf), nv.make_narrow(storage, spec.leaf)
    activation = _make_activation(spec.activation, spec.storage)
    LEAF, LANES, ROWS, VECTORS, EXACT, PDL = spec.leaf, spec.lanes, spec.rows, spec.vectors, spec.exact, spec.pdl
    ROUNDS, HELD, LANE_BITS = spec.rounds_activation, spec.vectors * spec.leaf, spec.lanes.bit_length() - 1
    get = nv.make_get(LEAF)

    def gated_kernel(x, out, x_stride, out_stride, rows, width):
        thread = int32(cuda.threadIdx.x)
        mine = int32((int32(cuda.blockIdx.x) * (VECTORS * LANES) + (thread & (LANES - 1))) * LEAF)
        room = int32(width - mine)  # elements of the row from the first of this thread's leaves on
        row = int64(cuda.blockIdx.y) * ROWS + (thread >> LANE_BITS)
        gates = cuda.local.array(HELD, float32)
        ups = cuda.local.array(HELD, float32)
        if PDL:
            nv.release_dependents()
            nv.wait_for_predecessor()

        while row < rows:
            gate_mine, out_mine = row * x_stride + mine, row * out_stride + mine
            for v in range(VECTORS):
                # A leaf past the row's end loads the row's first, for nothing: no branch parts the loads.
                jump = int32(v * LANES * LEAF) if EXACT or v * LANES * LEAF < room else int32(-mine)
                nv.put(gates, int64(v), widen(load(x, gate_mine, jump)))
                nv.put(ups, int64(v), widen(load(x, gate_mine + width, jump)))
            for v in range(VECTORS):
                offset = int32(v * LANES * LEAF)
                if EXACT or offset < room:
                    for j in range(v * LEAF, v * LEAF + LEAF):
                        gates[j] = activation(gates[j])
                    active = get(gates, int64(v))
                    if ROUNDS:
                        active = widen(narrow(active))
                    store(out, out_mine, offset, narrow(nv.vector_mul(active, get(ups, int64(v)))))
            row += int64(cuda.gridDim.y) * ROWS

    return gated_kernel

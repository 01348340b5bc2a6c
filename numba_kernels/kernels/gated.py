"""The gated activations, fast: ``out = act(gate) * up``, in one pass over memory.

No step of a row depends on another, so the grid is rows by column blocks. See textbook.py for the same in its plainest form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, int32, int64

from ..backend.arithmetic import vector_evens, vector_mul, vector_odds
from ..backend.conversions import float_from_bits, make_narrow, make_widen
from ..backend.dependent_launch import release_dependents, wait_for_predecessor
from ..backend.memory import make_get, make_load, make_store, put
from ..backend.scalars import make_rounded
from ..formats import FORMATS
from .activations import activation_of, make_activation, make_rounding
from .config import GatedConfig, GatedOperation


def make_gated_kernel(operation: GatedOperation, config: GatedConfig) -> Callable[..., Any]:
    """The kernel: ``kernel(x, out, x_stride, out_stride, rows, width)``, and two more where the activation has parameters.

    Buffers are addresses (GPU) or 1-D word arrays (CPU); strides, in elements, are between rows; ``width`` is the output's. The
    parameters are the bits of fp32 values. The grid is (column blocks, row blocks); a launch with fewer row blocks than rows need
    goes round again.
    """
    gated_rows = _make_gated_rows(operation, config)

    if activation_of(operation.activation).parameters:

        def gated_kernel(x, out, x_stride, out_stride, rows, width, first_bits, second_bits):
            gated_rows(x, out, x_stride, out_stride, rows, width, float_from_bits(first_bits), float_from_bits(second_bits))

    else:

        def gated_kernel(x, out, x_stride, out_stride, rows, width):
            gated_rows(x, out, x_stride, out_stride, rows, width, float32(0.0), float32(0.0))

    return gated_kernel


def _make_load_pair(operation: GatedOperation, config: GatedConfig) -> Callable[..., Any]:
    """``load_pair(x, first, jump, width) -> (gates, ups)``: fp32 vectors of the output's columns from ``jump`` past ``first`` on.

    ``first`` is the place in ``x`` of a column's gate; ``jump`` counts columns.
    """
    storage = FORMATS[operation.storage]
    count = config.vector * (2 if operation.interleaved else 1)
    load, widen = make_load(storage, count, config.access), make_widen(storage, count)

    if operation.interleaved:

        @cuda.jit(device=True, inline="always")
        def load_pair(x, first, jump, width):
            pairs = widen(load(x, first, int32(2 * jump)))
            return vector_evens(pairs), vector_odds(pairs)

    else:

        @cuda.jit(device=True, inline="always")
        def load_pair(x, first, jump, width):
            return widen(load(x, first, jump)), widen(load(x, first + width, jump))

    return load_pair


def _make_gated_rows(operation: GatedOperation, config: GatedConfig) -> Callable[..., Any]:
    """``gated_rows(x, out, x_stride, out_stride, rows, width, first, second)``: this thread's share of the rows."""
    storage = FORMATS[operation.storage]
    load_pair, store = _make_load_pair(operation, config), make_store(storage, config.vector, config.access)
    widen, narrow, get = make_widen(storage, config.vector), make_narrow(storage, config.vector), make_get(config.vector)
    rounded = make_rounding(operation.rounding, make_rounded(storage))
    active, factor = make_activation(operation.activation, operation.storage, rounded)
    VECTOR, LANES, ROWS, VECTORS, EXACT, PDL = (
        config.vector, config.lanes, config.rows, config.vectors, config.exact, config.pdl
    )  # fmt: skip
    STEP = 2 if operation.interleaved else 1  # from one column's gate to the next one's
    ROUNDS, HELD, LANE_BITS = operation.rounding != "S0", config.vectors * config.vector, config.lanes.bit_length() - 1

    @cuda.jit(device=True, inline="always")
    def gated_rows(x, out, x_stride, out_stride, rows, width, first, second):
        thread = int32(cuda.threadIdx.x)
        mine = int32((int32(cuda.blockIdx.x) * (VECTORS * LANES) + (thread & (LANES - 1))) * VECTOR)
        room = int32(width - mine)  # elements of the row from the first of this thread's vectors on
        row = int64(cuda.blockIdx.y) * ROWS + (thread >> LANE_BITS)
        gates = cuda.local.array(HELD, float32)
        ups = cuda.local.array(HELD, float32)
        if PDL:
            release_dependents()
            wait_for_predecessor()

        while row < rows:
            gate_mine, out_mine = row * x_stride + mine * STEP, row * out_stride + mine
            for v in range(VECTORS):
                # A vector past the row's end loads the row's first, for nothing: no branch parts the loads.
                jump = int32(v * LANES * VECTOR) if EXACT or v * LANES * VECTOR < room else int32(-mine)
                gate, up = load_pair(x, gate_mine, jump, width)
                put(gates, int64(v), gate)
                put(ups, int64(v), up)
            for v in range(VECTORS):
                offset = int32(v * LANES * VECTOR)
                if EXACT or offset < room:
                    for j in range(v * VECTOR, v * VECTOR + VECTOR):
                        gates[j] = active(gates[j], first, second)
                        ups[j] = factor(ups[j], first, second)
                    scaled = get(gates, int64(v))
                    if ROUNDS:
                        scaled = widen(narrow(scaled))
                    store(out, out_mine, offset, narrow(vector_mul(scaled, get(ups, int64(v)))))
            row += int64(cuda.gridDim.y) * ROWS

    return gated_rows

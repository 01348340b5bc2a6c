"""The kernels in their plainest form: one block a row, one element a thread at a time, no knob but the threads of a block.

Read these first. What the fast forms in norms.py and gated.py add, and why, is in docs/kernels.md. Any width whose fp32 row fits
the shared memory of a block, any stride between rows, any alignment. ``read`` and ``write`` convert between storage and fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, int64

from ..backend.arithmetic import divide, rsqrt
from ..backend.conversions import FORMATS, float_from_bits
from ..backend.scalars import make_read, make_rounded, make_write
from .activations import activation_of, make_activation, make_rounding
from .config import GatedOperation, NormOperation, TextbookConfig

FULL_WARP = 0xFFFFFFFF


def make_textbook_norm(operation: NormOperation, config: TextbookConfig) -> Callable[..., Any]:
    """``h = x (+ residual); residual <- h; out <- h / sqrt(mean(h²) + eps) * (weight + bias)``. Grid: (rows,).

    ``out`` may be ``x``. Launched as the fast kernels are, so with two parameters that it has no use for: the reciprocal of the
    width and the number of a tile counter. ``eps_bits`` and ``bias_bits`` are the bits of fp32 values.
    """
    read, read_weight = make_read(FORMATS[operation.storage]), make_read(FORMATS[operation.weight])
    write, rounded = make_write(FORMATS[operation.storage]), make_rounded(FORMATS[operation.storage])
    ADDS, R1, W1 = operation.adds_residual, operation.rounds_sum, operation.rounds_norm
    THREADS, WARPS = config.threads, config.threads // 32

    def norm_kernel(x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, _, eps_bits, bias_bits, __):
        row_values = cuda.shared.array(0, float32)  # the row in fp32: its size is given at the launch
        warp_sums = cuda.shared.array(WARPS, float32)
        thread = cuda.threadIdx.x
        row = int64(cuda.blockIdx.x)  # 64 bits, as a place in memory may lie beyond 2^31 elements
        x_row, residual_row, out_row = row * x_stride, row * residual_stride, row * out_stride

        # Neighbouring threads take neighbouring elements, so that a warp's accesses are one run of memory.
        total = float32(0.0)  # a plain 0.0 would be fp64, and so would be all that is added to it
        for i in range(thread, width, THREADS):
            h = read(x, x_row + i)
            if ADDS:
                h += read(residual, residual_row + i)
                write(residual, residual_row + i, h)
                if R1:
                    h = rounded(h)  # go on with the residual as it is stored
            row_values[i] = h  # read again below, by the same thread: it saves a second trip to memory
            total += h * h

        # Sum over the warp's 32 lanes by shuffles: after each step a lane's sum covers twice as many lanes.
        offset = 16
        while offset > 0:
            total += cuda.shfl_xor_sync(FULL_WARP, total, offset)
            offset //= 2

        # Sum over the warps by shared memory. Every thread adds them up for itself, which spares a second barrier.
        if thread % 32 == 0:
            warp_sums[thread // 32] = total
        cuda.syncthreads()
        total = float32(0.0)
        for warp in range(WARPS):
            total += warp_sums[warp]
        rstd = rsqrt(divide(total, float32(width)) + float_from_bits(eps_bits))

        # Scale in fp32 and round once, to store.
        for i in range(thread, width, THREADS):
            y = row_values[i] * rstd
            if W1:
                y = rounded(y)  # once before the weight, too
            write(out, out_row + i, y * (read_weight(weight, int64(i)) + float_from_bits(bias_bits)))

    return norm_kernel


def make_textbook_gated(operation: GatedOperation, config: TextbookConfig) -> Callable[..., Any]:
    """``out = act(gate) * up``, ``gate`` and ``up`` the halves of a row of ``x``, or its even and odd columns.

    Grid: (rows, column blocks). ``width`` is the output's; what follows are the bits of the activation's parameters, if it has any.
    """
    read, write = make_read(FORMATS[operation.storage]), make_write(FORMATS[operation.storage])
    rounded = make_rounded(FORMATS[operation.storage])
    active, factor = make_activation(operation.activation, operation.storage, make_rounding(operation.rounding, rounded))
    THREADS, INTERLEAVED, ROUNDS = config.threads, operation.interleaved, operation.rounding != "S0"

    @cuda.jit(device=True, inline="always")
    def gated_rows(x, out, x_stride, out_stride, width, first, second):
        x_row, out_row = int64(cuda.blockIdx.x) * x_stride, int64(cuda.blockIdx.x) * out_stride
        # A thread has one column, or several where the grid has not enough blocks for the row.
        for i in range(cuda.blockIdx.y * THREADS + cuda.threadIdx.x, width, cuda.gridDim.y * THREADS):
            gate = read(x, x_row + (2 * i if INTERLEAVED else i))
            up = read(x, x_row + (2 * i + 1 if INTERLEAVED else width + i))
            scaled = active(gate, first, second)
            if ROUNDS:
                scaled = rounded(scaled)  # S1: once before the multiply, too
            write(out, out_row + i, scaled * factor(up, first, second))

    if activation_of(operation.activation).parameters:

        def gated_kernel(x, out, x_stride, out_stride, rows, width, first_bits, second_bits):
            gated_rows(x, out, x_stride, out_stride, width, float_from_bits(first_bits), float_from_bits(second_bits))

    else:

        def gated_kernel(x, out, x_stride, out_stride, rows, width):
            gated_rows(x, out, x_stride, out_stride, width, float32(0.0), float32(0.0))

    return gated_kernel


def textbook_shape(rows: int, width: int, config: TextbookConfig, *, gated: bool) -> tuple[tuple[int, int, int], int]:
    """The grid, and the dynamic shared memory in bytes."""
    if gated:
        return (rows, min(65535, -(-width // config.threads)), 1), 0
    return (rows, 1, 1), 4 * width

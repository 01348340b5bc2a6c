"""The kernels in their plainest form: one block a row, one element a thread at a time, no knob but the threads of a block.

Read these first. What the fast forms in norms.py and gated.py add, and why, is in docs/kernels.md. Any width whose fp32 row fits
the shared memory of a block, any stride between rows, any alignment. ``read`` and ``write`` convert between storage and fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, int64

from ..backend.arithmetic import divide, fma, rsqrt
from ..backend.conversions import float_from_bits
from ..backend.scalars import make_read, make_rounded, make_write
from ..formats import FORMATS
from .activations import activation_of, make_activation, make_rounding
from .config import GatedOperation, NormOperation, TextbookConfig

FULL_WARP = 0xFFFFFFFF


def make_textbook_norm(operation: NormOperation, config: TextbookConfig) -> Callable[..., Any]:
    """``h = x (+ residual); residual <- h; out <- h / sqrt(mean(h²) + eps) * (weight + bias)``. Grid: (rows,).

    ``out`` may be ``x``; ``eps`` and ``bias`` are the bits of fp32 values. The fast kernels need ``share`` and ``counter``.
    """
    storage, weights, THREADS, WARPS = FORMATS[operation.storage], FORMATS[operation.weight], config.threads, config.threads // 32
    read, read_weight, write, rounded = make_read(storage), make_read(weights), make_write(storage), make_rounded(storage)
    ADDS, R1, W1 = operation.adds_residual, operation.rounds_sum, operation.rounds_norm

    def norm_kernel(x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share, eps, bias, counter):
        row_values = cuda.shared.array(0, float32)  # the row in fp32: its size is given at the launch
        warp_sums = cuda.shared.array(WARPS, float32)
        thread, row = cuda.threadIdx.x, int64(cuda.blockIdx.x)  # 64 bits: memory may hold more than 2^31 elements
        x_row, residual_row, out_row = row * x_stride, row * residual_stride, row * out_stride

        # Neighbouring threads take neighbouring elements, so that a warp's accesses are one run of memory.
        total = float32(0.0)  # a plain 0.0 would be fp64, and so would be all that is added to it
        for i in range(thread, width, THREADS):
            h = read(x, x_row + i)
            if ADDS:
                h += read(residual, residual_row + i)
                write(residual, residual_row + i, h)
            if R1:
                h = rounded(h)  # go on with the sum as it is stored
            row_values[i] = h  # for the same thread, below: it spares a second trip to memory
            total = fma(h, h, total)
        # Over the 32 lanes of a warp by shuffles: after each step, a lane's sum covers twice as many of them.
        for offset in (16, 8, 4, 2, 1):
            total += cuda.shfl_xor_sync(FULL_WARP, total, offset)
        # Over the warps through shared memory. Every thread adds them up for itself, which spares a second barrier.
        if thread % 32 == 0:
            warp_sums[thread // 32] = total
        cuda.syncthreads()
        total = float32(0.0)
        for warp in range(WARPS):
            total += warp_sums[warp]

        rstd = rsqrt(divide(total, float32(width)) + float_from_bits(eps))
        for i in range(thread, width, THREADS):
            y = row_values[i] * rstd
            if W1:
                y = rounded(y)  # once before the weight, too
            write(out, out_row + i, y * (read_weight(weight, int64(i)) + float_from_bits(bias)))

    return norm_kernel


def make_textbook_gated(operation: GatedOperation, config: TextbookConfig) -> Callable[..., Any]:
    """``out = act(gate) * up``, ``gate`` and ``up`` the halves of a row of ``x``, or its even and odd columns.

    Grid: (rows, column blocks). ``width`` is the output's; after it come the bits of the activation's parameters, if it has any.
    """
    storage, THREADS, INTERLEAVED = FORMATS[operation.storage], config.threads, operation.interleaved
    read, write, rounded, ROUNDS = make_read(storage), make_write(storage), make_rounded(storage), operation.rounding != "S0"
    active, factor = make_activation(operation.activation, operation.storage, make_rounding(operation.rounding, rounded))

    @cuda.jit(device=True, inline="always")
    def gated_row(x, out, x_stride, out_stride, width, first, second):
        x_row, out_row = int64(cuda.blockIdx.x) * x_stride, int64(cuda.blockIdx.x) * out_stride
        # A thread has one column, or several where the row has more than a grid's column blocks cover.
        for i in range(cuda.blockIdx.y * THREADS + cuda.threadIdx.x, width, cuda.gridDim.y * THREADS):
            gate = read(x, x_row + (2 * i if INTERLEAVED else i))
            up = read(x, x_row + (2 * i + 1 if INTERLEAVED else width + i))
            scaled = active(gate, first, second)
            if ROUNDS:
                scaled = rounded(scaled)  # S1: once before the multiply, too
            write(out, out_row + i, scaled * factor(up, first, second))

    if activation_of(operation.activation).parameters:

        def gated_kernel(x, out, x_stride, out_stride, rows, width, first_bits, second_bits):
            gated_row(x, out, x_stride, out_stride, width, float_from_bits(first_bits), float_from_bits(second_bits))

    else:

        def gated_kernel(x, out, x_stride, out_stride, rows, width):
            gated_row(x, out, x_stride, out_stride, width, float32(0.0), float32(0.0))

    return gated_kernel

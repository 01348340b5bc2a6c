"""Kernels that ours are held beside: the same launch with nothing in it, the same bytes moved with nothing computed, and a norm
whose spare blocks call the next product's weight into L2.

The first two take the parameters of the kernel in whose place they are launched (`numba_kernels.kernels`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from numba import cuda, int32, int64

from numba_kernels.backend.conversions import word_type, words_in
from numba_kernels.backend.dependent_launch import release_dependents, wait_for_predecessor
from numba_kernels.backend.memory import make_get, make_load, make_store, prefetch_l2, put
from numba_kernels.formats import FORMATS
from numba_kernels.kernels.config import GatedConfig, GatedOperation, Kernel, NormConfig, NormOperation
from numba_kernels.kernels.norms import make_norm_kernel
from numba_kernels.kernels.reduction import log2
from numba_kernels.kernels.row import make_begin, make_load_inside, make_load_weight, make_loaded, make_look_ahead, make_ownership


def make_empty(kernel: Kernel) -> Callable[..., Any]:
    """Nothing but what dependent launch asks for, at the places in which the kernel does it."""
    if isinstance(kernel.config, NormConfig):
        return _empty_norm(kernel.operation, replace(kernel.config, prefetch_first=False))
    return _empty_gated(kernel.config)


def make_move(kernel: Kernel) -> Callable[..., Any]:
    """The kernel's loads and stores, by the same threads in the same vectors, and no arithmetic.

    Of a norm: the new residual becomes x and the output residual ^ weight, or the output x ^ weight where nothing is added; of a
    gated activation: gate ^ up (^ on the bits: what is loaded must be used). ValueError for rows that registers don't hold, or
    that clusters take from a counter.
    """
    if isinstance(kernel.config, NormConfig):
        if kernel.config.persistent or kernel.config.row_in != "registers":
            raise ValueError("only rows that a block, or a cluster each, has in registers are moved")
        return _move_norm(kernel.operation, kernel.config)
    return _move_gated(kernel.operation, kernel.config)


def _empty_norm(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    begin, loaded = make_begin(operation, config), make_loaded(config)

    def empty(
        x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share_bits, eps_bits, bias_bits, counter
    ):
        begin(False, weight, residual, int64(0), residual_stride, rows, width)
        loaded()

    return empty


def _empty_gated(config: GatedConfig) -> Callable[..., Any]:
    PDL = config.pdl

    def empty(x, out, x_stride, out_stride, rows, width):
        if PDL:
            release_dependents()
            wait_for_predecessor()

    return empty


def _make_mixed(storage: str, vector: int) -> Callable[..., Any]:
    """``mixed(words, others) -> words``: their exclusive or."""
    WORDS, WORD = words_in(FORMATS[storage], vector), word_type(FORMATS[storage], vector)
    get = make_get(WORDS)

    @cuda.jit(device=True, inline="always")
    def mixed(words, others):
        one, other = cuda.local.array(WORDS, WORD), cuda.local.array(WORDS, WORD)
        put(one, int64(0), words)
        put(other, int64(0), others)
        for k in range(WORDS):
            one[k] ^= other[k]
        return get(one, int64(0))

    return mixed


def _move_norm(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    storage = FORMATS[operation.storage]
    load, store = make_load_inside(storage, config, config.access), make_store(storage, config.vector, config.access)
    load_weight, mixed = make_load_weight(operation, config), _make_mixed(operation.storage, config.vector)
    begin, look_ahead, loaded = make_begin(operation, config), make_look_ahead(operation, config), make_loaded(config)
    first_of, offset_of, inside = make_ownership(config)
    WORDS, WORD = words_in(storage, config.vector), word_type(storage, config.vector)
    ADDS, HELD, get = operation.adds_residual, config.vectors_per_thread, make_get(WORDS)
    IN_A_WARP, LANES, ROWS, EXACT = config.in_a_warp, config.lanes, config.rows_per_block, config.exact
    CLUSTER, WARPS, SIZE, LANE_BITS, CLUSTER_BITS = config.cluster, config.warps, HELD * WORDS, log2(LANES), log2(config.cluster)

    def move(
        x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share_bits, eps_bits, bias_bits, counter
    ):
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        lane, warp = int32(thread & (LANES - 1)), int32(0)
        row = int64(block) * ROWS + (thread >> LANE_BITS)
        if not IN_A_WARP:
            warp = int32((block & (CLUSTER - 1)) * WARPS + (thread >> 5))
            row = int64(block >> CLUSTER_BITS)
        mine = first_of(warp, lane)
        room = int32(width - mine)
        if IN_A_WARP and ROWS > 1 and not EXACT and row >= rows:
            row = rows - 1
            room = int32(0)
        leads = lane == 0 and warp == 0 and room > 0
        xs, residuals, gains = (cuda.local.array(SIZE, WORD), cuda.local.array(SIZE, WORD), cuda.local.array(SIZE, WORD))
        begin(leads, weight, residual, row, residual_stride, rows, width)
        x_mine, residual_mine, out_mine = row * x_stride + mine, row * residual_stride + mine, row * out_stride + mine
        look_ahead(leads, x, x_stride, residual, residual_stride, row, rows, int64(0), width)
        for i in range(HELD):
            there = inside(i, room)
            jump = int32(-mine) if IN_A_WARP and not EXACT and not there else offset_of(i)
            put(xs, int64(i), load(x, x_mine, jump, there))
            if ADDS:
                put(residuals, int64(i), load(residual, residual_mine, jump, there))
            put(gains, int64(i), load_weight(weight, int64(mine), jump, there))
        loaded()
        if IN_A_WARP and not EXACT:
            cuda.syncwarp()  # as the kernel: lanes past the row's end have loaded its first vector, which is stored now
        for i in range(HELD):
            if inside(i, room):
                if ADDS:
                    store(residual, residual_mine, offset_of(i), get(xs, int64(i)))
                    store(out, out_mine, offset_of(i), mixed(get(residuals, int64(i)), get(gains, int64(i))))
                else:
                    store(out, out_mine, offset_of(i), mixed(get(xs, int64(i)), get(gains, int64(i))))

    return move


def _move_gated(operation: GatedOperation, config: GatedConfig) -> Callable[..., Any]:
    storage = FORMATS[operation.storage]
    load, store = make_load(storage, config.vector, config.access), make_store(storage, config.vector, config.access)
    mixed, WORDS, WORD = (
        _make_mixed(operation.storage, config.vector),
        words_in(storage, config.vector),
        word_type(storage, config.vector),
    )
    VECTOR, LANES, ROWS, VECTORS, EXACT, PDL = (
        config.vector, config.lanes, config.rows, config.vectors, config.exact, config.pdl
    )  # fmt: skip
    LANE_BITS, SIZE, get = log2(LANES), VECTORS * WORDS, make_get(WORDS)

    def move(x, out, x_stride, out_stride, rows, width):
        thread = int32(cuda.threadIdx.x)
        mine = int32((int32(cuda.blockIdx.x) * (VECTORS * LANES) + (thread & (LANES - 1))) * VECTOR)
        room = int32(width - mine)
        row = int64(cuda.blockIdx.y) * ROWS + (thread >> LANE_BITS)
        gates, ups = cuda.local.array(SIZE, WORD), cuda.local.array(SIZE, WORD)
        if PDL:
            release_dependents()
            wait_for_predecessor()
        while row < rows:
            gate_mine, out_mine = row * x_stride + mine, row * out_stride + mine
            for v in range(VECTORS):
                jump = int32(v * LANES * VECTOR) if EXACT or v * LANES * VECTOR < room else int32(-mine)
                put(gates, int64(v), load(x, gate_mine, jump))
                put(ups, int64(v), load(x, gate_mine + width, jump))
            for v in range(VECTORS):
                offset = int32(v * LANES * VECTOR)
                if EXACT or offset < room:
                    store(out, out_mine, offset, mixed(get(gates, int64(v)), get(ups, int64(v))))
            row += int64(cuda.gridDim.y) * ROWS

    return move


def make_norm_with_prefetch(kernel: Kernel) -> Callable[..., Any]:
    """The norm of rows that have a block each, and blocks beyond theirs that ask the L2 cache for `pieces` pieces of `size`
    bytes, `step` bytes apart, from the address `ahead` on: the norm's own parameters, then `ahead, pieces, step, size`.

    Those blocks wait for nobody: what they ask for is a weight, which no predecessor writes.
    """
    operation, config = kernel.operation, kernel.config
    assert isinstance(config, NormConfig)
    if config.cluster > 1 or config.in_a_warp or config.row_in != "registers":
        raise ValueError("only of rows that have a block each, in registers")
    norm, THREADS = cuda.jit(device=True, inline="always")(make_norm_kernel(operation, config)), config.threads

    def norm_with_prefetch(
        x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share_bits, eps_bits, bias_bits, counter,
        ahead, pieces, step, size,
    ):  # fmt: skip
        block = int64(int32(cuda.blockIdx.x))
        if block < rows:
            norm(
                x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width,
                share_bits, eps_bits, bias_bits, counter,
            )  # fmt: skip
        else:
            spare = int64(int32(cuda.gridDim.x)) - rows
            piece = int32(cuda.threadIdx.x) * spare + (block - rows)  # every block has its share, however few pieces there are
            while piece < pieces:
                prefetch_l2(ahead, piece * step, int64(1), size)
                piece += spare * THREADS

    return norm_with_prefetch

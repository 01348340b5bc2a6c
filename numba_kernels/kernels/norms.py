"""The RMSNorm kernels: ``h = x (+ residual); y = h / sqrt(mean(h²) + eps) * weight``. Each adds something to the one before.

Read textbook.py first, then streamed.py, then this; ladder.py says what each step adds. All have one summation tree
(reduction.py) and so the same bits. What a thread does for its share of a row is in row.py; where a contract rounds, rounding.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, int32, int64, uint64

from ..backend.clusters import cluster_arrive, cluster_wait, init_mbarrier, send_to_block, wait_for_phase
from ..backend.tile_counter import make_take_tile
from .config import TILE_COUNTERS, NormConfig, NormOperation
from .reduction import log2, make_sum_in_block, make_sum_in_cluster, make_sum_in_warp
from .row import (
    make_add_squares,
    make_begin,
    make_keep_weights,
    make_load_row,
    make_loaded,
    make_look_ahead,
    make_ownership,
    make_scale_row,
    make_scale_row_by_kept,
    make_store_sum,
    rstd_of,
    words_of_weight,
)
from .streamed import make_streamed_kernel
from .tree import MAX_TILES


def make_norm_kernel(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``kernel(x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share, eps, bias, counter)``.

    Buffers are addresses (GPU) or 1-D word arrays (CPU); strides, in elements, are between rows. ``residual`` is written with the
    new residual where the operation adds one, and ignored otherwise. ``out`` may be ``x``. ``share`` (1 / width), ``eps`` and
    ``bias`` (the weight's) are the bits of fp32 values. ``counter`` is the number of the counter from which a persistent kernel
    takes its rows; no two launches that run at the same time may have the same.
    """
    if config.row_in != "registers":
        return make_streamed_kernel(operation, config)
    if config.cluster > 1:
        return make_cluster_kernel(operation, config)
    return make_warp_kernel(operation, config) if config.in_a_warp else make_block_kernel(operation, config)


def make_block_kernel(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """A row by one block, in registers: what is loaded once is neither stored nor loaded again before it is scaled."""
    load_row, store_sum, scale_row = (make(operation, config) for make in (make_load_row, make_store_sum, make_scale_row))
    begin, look_ahead, loaded = make_begin(operation, config), make_look_ahead(operation, config), make_loaded(config)
    add_squares, sum_row, (first_of, *_) = make_add_squares(config), make_sum_in_block(config), make_ownership(config)
    ADDS, VALUES, TILES = operation.adds_residual, config.vectors_per_thread * config.vector, config.tiles_per_warp
    WORDS, WORD = words_of_weight(operation, config)

    def norm_kernel(
        x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share_bits, eps_bits, bias_bits, counter
    ):
        # Which row this block has, and where in it this thread's first vector lies.
        thread, row = int32(cuda.threadIdx.x), int64(int32(cuda.blockIdx.x))
        lane, warp = int32(thread & 31), int32(thread >> 5)
        mine = first_of(warp, lane)
        room = int32(width - mine)  # elements of the row from this thread's first vector on
        leads = lane == 0 and warp == 0 and room > 0
        values = cuda.local.array(VALUES, float32)
        gains = cuda.local.array(WORDS, WORD)
        partial = cuda.local.array(TILES, float32)
        tile_sums = cuda.shared.array(MAX_TILES, float32)
        begin(
            leads, weight, residual, row, residual_stride, rows, width
        )  # waits for the predecessor, if there is dependent launch

        # h = x + residual in fp32, all loads at once; memory works on a later row while this one waits for its sum.
        x_mine, residual_mine, out_mine = row * x_stride + mine, row * residual_stride + mine, row * out_stride + mine
        look_ahead(leads, x, x_stride, residual, residual_stride, row, rows, int64(0), width)
        load_row(values, gains, x, x_mine, residual, residual_mine, weight, mine, room)
        loaded()
        if ADDS:
            store_sum(values, residual, residual_mine, room)

        # The sum of squares: vectors by thread, warp tiles by warp, the row by everybody.
        add_squares(partial, values)
        rstd = rstd_of(sum_row(tile_sums, partial, width, warp, lane), share_bits, eps_bits)
        scale_row(values, rstd, gains, weight, mine, out, out_mine, room, bias_bits)

    return norm_kernel


def make_warp_kernel(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """A row by one warp or a part of one, and several rows a block: short rows need no barrier, and fill a block together."""
    load_row, store_sum, scale_row = (make(operation, config) for make in (make_load_row, make_store_sum, make_scale_row))
    begin, look_ahead, loaded = make_begin(operation, config), make_look_ahead(operation, config), make_loaded(config)
    add_squares, sum_row, (first_of, *_) = make_add_squares(config), make_sum_in_warp(config), make_ownership(config)
    ADDS, VALUES, TILES = operation.adds_residual, config.vectors_per_thread * config.vector, config.tiles_per_warp
    LANES, LANE_BITS, ROWS, EXACT = config.lanes, log2(config.lanes), config.rows_per_block, config.exact
    WORDS, WORD = words_of_weight(operation, config)

    def norm_kernel(
        x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share_bits, eps_bits, bias_bits, counter
    ):
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        lane, row = int32(thread & (LANES - 1)), int64(block) * ROWS + (thread >> LANE_BITS)
        mine = first_of(int32(0), lane)
        room = int32(width - mine)
        if ROWS > 1 and not EXACT and row >= rows:
            # Lanes without a row take part in their warp's shuffles, with nothing of the last one.
            row = rows - 1
            room = int32(0)
        leads = lane == 0 and room > 0
        values = cuda.local.array(VALUES, float32)
        gains = cuda.local.array(WORDS, WORD)
        partial = cuda.local.array(TILES, float32)
        begin(leads, weight, residual, row, residual_stride, rows, width)
        x_mine, residual_mine, out_mine = row * x_stride + mine, row * residual_stride + mine, row * out_stride + mine
        look_ahead(leads, x, x_stride, residual, residual_stride, row, rows, int64(0), width)
        load_row(values, gains, x, x_mine, residual, residual_mine, weight, mine, room)
        loaded()
        if ADDS:
            if not EXACT:
                cuda.syncwarp()  # lanes past the row's end have loaded its first vector, which is stored now
            store_sum(values, residual, residual_mine, room)
        add_squares(partial, values)
        rstd = rstd_of(sum_row(partial, lane), share_bits, eps_bits)
        scale_row(values, rstd, gains, weight, mine, out, out_mine, room, bias_bits)

    return norm_kernel


def make_cluster_kernel(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """A row by a cluster of blocks, which send each other their warp tiles' sums: for rows too wide, or too few, for one block.

    Persistent: a cluster keeps the weight and takes row after row, in their order in memory: the first by its place in the grid,
    the others from a counter. Sums and the next row have two places, used in turn (``which``), so that those of one row are read
    while those of the next are written. An mbarrier counts what arrives at each place: number ``which`` the sums, ``2 + which``
    the next row. Thread 0 of a block says how many are to come (in ``send_row``); ``phase`` is how often, modulo 2, all have.
    """
    load_row, store_sum, scale_row = (make(operation, config) for make in (make_load_row, make_store_sum, make_scale_row_by_kept))
    begin, look_ahead, loaded = make_begin(operation, config), make_look_ahead(operation, config), make_loaded(config)
    add_squares, keep_weights, take_row = make_add_squares(config), make_keep_weights(operation, config), make_take_row(config)
    (send_row, sum_row), (first_of, *_) = make_sum_in_cluster(config), make_ownership(config)
    CLUSTER, CLUSTER_BITS, WARPS, PERSISTENT = config.cluster, log2(config.cluster), config.warps, config.persistent
    ADDS, VALUES, TILES = operation.adds_residual, config.vectors_per_thread * config.vector, config.tiles_per_warp
    (WORDS, WORD), SUMS = words_of_weight(operation, config), 2 * MAX_TILES

    def norm_kernel(
        x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share_bits, eps_bits, bias_bits, counter
    ):
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        lane, rank = int32(thread & 31), int32(block & (CLUSTER - 1))
        warp, row = int32(rank * WARPS + (thread >> 5)), int64(block >> CLUSTER_BITS)  # the warp's number in its cluster
        mbarriers, tile_sums = cuda.shared.array(4, uint64), cuda.shared.array(SUMS, float32)
        next_rows, kept = cuda.shared.array(2, int32), cuda.shared.array(0, WORD, alignment=16)
        if thread < 4:
            init_mbarrier(mbarriers, int64(thread))
        cluster_arrive()
        mine = first_of(warp, lane)
        room, piece = int32(width - mine), (width >> CLUSTER_BITS) & int64(-16)  # a piece of a later row, to be prefetched
        values, gains = cuda.local.array(VALUES, float32), cuda.local.array(WORDS, WORD)
        partial = cuda.local.array(TILES, float32)
        begin(lane == 0 and warp == 0 and room > 0, weight, residual, row, residual_stride, rows, width)
        turn, going = int32(0), True
        while going:
            which, phase = int32(turn & 1), int32((turn >> 1) & 1)
            x_mine, residual_mine, out_mine = row * x_stride + mine, row * residual_stride + mine, row * out_stride + mine
            look_ahead(thread == 0, x, x_stride, residual, residual_stride, row, rows, int64(rank) * piece, piece)
            load_row(values, gains, x, x_mine, residual, residual_mine, weight, mine, room)
            loaded()
            if ADDS:
                store_sum(values, residual, residual_mine, room)
            add_squares(partial, values)
            if turn == 0:
                cluster_wait()  # every block has started, so its shared memory may be written
            send_row(tile_sums, mbarriers, which, partial, warp, lane, thread)
            if turn == 0:
                keep_weights(kept, thread, weight, mine, room)
            wait_for_phase(mbarriers, int64(which), phase)
            if PERSISTENT and thread == 0 and rank == 0:
                take_row(next_rows, which, mbarriers, counter, rows)  # no sooner than its turn is near: rows start in order
            rstd = rstd_of(sum_row(tile_sums, which, width, lane), share_bits, eps_bits)
            scale_row(values, rstd, kept, thread, out, out_mine, room, bias_bits)
            if PERSISTENT:
                wait_for_phase(mbarriers, int64(2 + which), phase)
                row = int64(cuda.gridDim.x >> CLUSTER_BITS) + next_rows[which]
                turn += 1
            going = PERSISTENT and row < rows

    return norm_kernel


def make_take_row(config: NormConfig) -> Callable[..., Any]:
    """``take_row(next_rows, which, mbarriers, counter, rows)``: one thread takes the cluster's next row and tells every block."""
    CLUSTER, take_tile = config.cluster, make_take_tile(TILE_COUNTERS)

    @cuda.jit(device=True, inline="always")
    def take_row(next_rows, which, mbarriers, counter, rows):
        taken = take_tile(int32(counter), int32(rows))
        for other in range(CLUSTER):
            send_to_block(next_rows, int64(which), taken, int32(other), mbarriers, int64(2 + which))

    return take_row

"""Norms of rows that registers don't hold, a few vectors of a thread at a time: a *round*. See norms.py for the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, int32, int64

from ..backend.conversions import make_narrow
from ..backend.memory import make_get, make_store, put
from ..formats import FORMATS
from .config import NormConfig, NormOperation
from .reduction import log2, make_share_sums, make_sum_by_threads, make_sum_tiles
from .rounding import make_scaled
from .row import make_add_squares, make_begin, make_load_vector, make_load_weight, make_loaded, make_ownership, rstd_of
from .tree import MAX_TILES


def make_streamed_kernel(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """A row by one block in 16-byte vectors: an eighth of the textbook's accesses to memory.

    The row waits in ``cuda.shared``, as the textbook's does, or, where it doesn't fit, is read again.
    """
    load_round, keep_round = make_load_round(operation, config), make_keep_round(operation, config)
    get_round, scale_round = make_get_round(operation, config), make_scale_round(operation, config)
    add_squares, (add_round, sum_row) = make_add_squares(config), make_sum_of_rounds(config)
    begin, loaded, (first_of, *_) = make_begin(operation, config), make_loaded(config), make_ownership(config)
    VALUES, TILES, WARPS = config.vectors_per_thread * config.vector, config.tiles_per_warp, config.warps
    TILE_BITS, HELD = log2(32 * config.vectors_per_lane * config.vector), config.vectors_per_thread

    def norm_kernel(
        x, residual, weight, out, x_stride, residual_stride, out_stride, rows, width, share_bits, eps_bits, bias_bits, counter
    ):
        thread, row = int32(cuda.threadIdx.x), int64(cuda.blockIdx.x)
        lane, warp = int32(thread & 31), int32(thread >> 5)
        tiles = int32((width + ((1 << TILE_BITS) - 1)) >> TILE_BITS)
        rounds = int32((tiles + (TILES * WARPS - 1)) // (TILES * WARPS))
        slots = rounds * (HELD * WARPS * 32)
        mine = first_of(warp, lane)
        room = int32(width - mine)
        x_mine, residual_mine, out_mine = row * x_stride + mine, row * residual_stride + mine, row * out_stride + mine
        values = cuda.local.array(VALUES, float32)
        partial = cuda.local.array(TILES, float32)
        total = cuda.local.array(1, float32)
        tile_sums = cuda.shared.array(MAX_TILES, float32)
        row_values = cuda.shared.array(0, float32)
        begin(False, weight, residual, row, residual_stride, rows, width)

        total[0] = float32(0.0)
        for n in range(rounds):
            load_round(values, x, x_mine, residual, residual_mine, mine, room, n)
            keep_round(values, row_values, slots, thread, residual, residual_mine, room, n)
            add_squares(partial, values)
            add_round(tile_sums, total, partial, n, warp, lane, tiles)
        loaded()
        rstd = rstd_of(sum_row(tile_sums, total, tiles, warp, lane), share_bits, eps_bits)
        for n in range(rounds):  # each thread scales what it summed
            get_round(values, row_values, slots, thread, x, x_mine, residual, residual_mine, mine, room, n)
            scale_round(values, rstd, residual, residual_mine, weight, mine, out, out_mine, room, bias_bits, n)

    return norm_kernel


def make_load_round(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``load_round(values, x, x_mine, residual, residual_mine, mine, room, n)``: h of round ``n``."""
    load_vector, (_, offset_of, inside) = make_load_vector(operation, config), make_ownership(config)
    HELD = config.vectors_per_thread

    @cuda.jit(device=True, inline="always")
    def load_round(values, x, x_mine, residual, residual_mine, mine, room, n):
        for i in range(HELD):
            there = inside(n * HELD + i, room)
            put(values, int64(i), load_vector(x, x_mine, residual, residual_mine, offset_of(n * HELD + i), there))

    return load_round


def make_keep_round(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``keep_round(values, row_values, slots, thread, residual, residual_mine, room, n)``: what waits for the sum.

    Element j of the vector in slot s is ``row_values[j * slots + s]``: neighbouring lanes use neighbouring banks. A row that
    isn't kept leaves the old residual in place, to be read again.
    """
    storage = FORMATS[operation.storage]
    store, narrow = make_store(storage, config.vector, config.access), make_narrow(storage, config.vector)
    (_, offset_of, inside), get = make_ownership(config), make_get(config.vector)
    ADDS, SHARED, HELD = operation.adds_residual, config.row_in == "shared", config.vectors_per_thread
    VECTOR, THREADS = config.vector, config.threads

    @cuda.jit(device=True, inline="always")
    def keep_round(values, row_values, slots, thread, residual, residual_mine, room, n):
        for i in range(HELD):
            if ADDS and SHARED and inside(n * HELD + i, room):
                store(residual, residual_mine, offset_of(n * HELD + i), narrow(get(values, int64(i))))
            if SHARED:
                slot = (n * HELD + i) * THREADS + thread
                for j in range(VECTOR):
                    row_values[j * slots + slot] = values[i * VECTOR + j]

    return keep_round


def make_sum_of_rounds(config: NormConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``add_round(tile_sums, total, partial, n, warp, lane, tiles)`` and ``sum_row(tile_sums, total, tiles, warp, lane)``."""
    TILES, WARPS, sum_tiles = config.tiles_per_warp, config.warps, make_sum_tiles(MAX_TILES)
    share_sums, sum_threads = make_share_sums(config), make_sum_by_threads(config)

    if config.fixed_tree:

        @cuda.jit(device=True, inline="always")
        def add_round(tile_sums, total, partial, n, warp, lane, tiles):
            share_sums(tile_sums, partial, int32(n * (TILES * WARPS)), warp, lane, tiles)

        @cuda.jit(device=True, inline="always")
        def sum_row(tile_sums, total, tiles, warp, lane):
            cuda.syncthreads()
            return sum_tiles(tile_sums, int32(0), tiles, lane)

    else:

        @cuda.jit(device=True, inline="always")
        def add_round(tile_sums, total, partial, n, warp, lane, tiles):
            for k in range(TILES):
                total[0] += partial[k]

        @cuda.jit(device=True, inline="always")
        def sum_row(tile_sums, total, tiles, warp, lane):
            return sum_threads(tile_sums, total[0], warp, lane)

    return add_round, sum_row


def make_get_round(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``get_round(values, row_values, slots, thread, x, x_mine, residual, residual_mine, mine, room, n)``: h once more."""
    load_vector, (_, offset_of, inside) = make_load_vector(operation, config), make_ownership(config)
    SHARED, HELD, VECTOR, THREADS = config.row_in == "shared", config.vectors_per_thread, config.vector, config.threads

    @cuda.jit(device=True, inline="always")
    def get_round(values, row_values, slots, thread, x, x_mine, residual, residual_mine, mine, room, n):
        for i in range(HELD):
            if SHARED:
                slot = (n * HELD + i) * THREADS + thread
                for j in range(VECTOR):
                    values[i * VECTOR + j] = row_values[j * slots + slot]
            else:
                there = inside(n * HELD + i, room)
                put(values, int64(i), load_vector(x, x_mine, residual, residual_mine, offset_of(n * HELD + i), there))

    return get_round


def make_scale_round(operation: NormOperation, config: NormConfig) -> Callable[..., Any]:
    """``scale_round(values, rstd, residual, residual_mine, weight, mine, out, out_mine, room, bias_bits, n)``: the output."""
    storage = FORMATS[operation.storage]
    store, narrow = make_store(storage, config.vector, config.access), make_narrow(storage, config.vector)
    scaled, load_weight = make_scaled(operation, config.vector), make_load_weight(operation, config)
    (_, offset_of, inside), get = make_ownership(config), make_get(config.vector)
    ADDS, SHARED, HELD = operation.adds_residual, config.row_in == "shared", config.vectors_per_thread

    @cuda.jit(device=True, inline="always")
    def scale_round(values, rstd, residual, residual_mine, weight, mine, out, out_mine, room, bias_bits, n):
        for i in range(HELD):
            offset = offset_of(n * HELD + i)
            if inside(n * HELD + i, room):
                h = get(values, int64(i))
                if ADDS and not SHARED:
                    store(residual, residual_mine, offset, narrow(h))
                store(out, out_mine, offset, scaled(h, rstd, load_weight(weight, int64(mine), offset, True), bias_bits))

    return scale_round

"""The sum over a row, by the tree that tree.py declares: across the lanes of a warp, a block's warps, a cluster's blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, int32, int64, uint32

from ..backend.clusters import arrive_and_expect, send_to_block
from .config import NormConfig
from .tree import MAX_TILES

FULL_WARP = 0xFFFFFFFF


def log2(power: int) -> int:
    """``n >> log2(power)`` is ``n // power`` in one instruction, where Python's division of a signed number takes six."""
    return power.bit_length() - 1


# --- across the lanes of a warp -------------------------------------------------------------------------------------------


@cuda.jit(device=True, inline="always")
def butterfly(value, widest, narrowest):
    """``value`` added across lanes ``widest`` apart, then half as far, down to ``narrowest`` (powers of two; none from 0)."""
    offset = widest
    while offset >= narrowest:
        value += cuda.shfl_xor_sync(FULL_WARP, value, offset)
        offset >>= 1
    return value


@cuda.jit(device=True, inline="always")
def exchange(low, high, lane, offset):
    """Halve two values a lane: lanes with the ``offset`` bit take over ``high``, the others ``low``, each pair added."""
    upper = (lane & offset) != 0
    keep = high if upper else low
    give = low if upper else high
    return keep + cuda.shfl_xor_sync(FULL_WARP, give, offset)


def make_warp_sums(tiles: int) -> Callable[..., Any]:
    """``warp_sums(partial, lane)``: sums of ``tiles`` (1, 2, 4 or 8) values a lane, each over the 32 lanes.

    The sum of ``partial[k]`` ends in the lanes with ``lane // (32 // tiles) == k``: 5, 5, 6 or 9 shuffles in place of 5 each,
    and the same additions as ``tiles`` butterflies.
    """
    if tiles == 1:

        @cuda.jit(device=True, inline="always")
        def warp_sums(partial, lane):
            return butterfly(partial[0], 16, 1)

    elif tiles == 2:

        @cuda.jit(device=True, inline="always")
        def warp_sums(partial, lane):
            total = exchange(partial[0], partial[1], lane, 16)
            return butterfly(total, 8, 1)

    elif tiles == 4:

        @cuda.jit(device=True, inline="always")
        def warp_sums(partial, lane):
            first = exchange(partial[0], partial[2], lane, 16)
            second = exchange(partial[1], partial[3], lane, 16)
            total = exchange(first, second, lane, 8)
            return butterfly(total, 4, 1)

    elif tiles == 8:

        @cuda.jit(device=True, inline="always")
        def warp_sums(partial, lane):
            even = exchange(exchange(partial[0], partial[4], lane, 16), exchange(partial[2], partial[6], lane, 16), lane, 8)
            odd = exchange(exchange(partial[1], partial[5], lane, 16), exchange(partial[3], partial[7], lane, 16), lane, 8)
            return butterfly(exchange(even, odd, lane, 4), 2, 1)

    else:
        raise ValueError(f"tiles: {tiles}; 1, 2, 4 or 8 are supported")
    return warp_sums


# --- across warps and blocks ----------------------------------------------------------------------------------------------


def make_share_sums(config: NormConfig) -> Callable[..., Any]:
    """``share_sums(tile_sums, partial, first, warp, lane, tiles)``: a warp's sums, told to the whole block.

    ``partial[k]`` belongs to tile ``first + k * WARPS + warp`` and goes to that place of ``tile_sums``, in shared memory; it is
    there after the next barrier.
    """
    SHARE, EXACT, WARPS = 32 // config.tiles_per_warp, config.exact, config.warps
    SHIFT, warp_sums = log2(SHARE), make_warp_sums(config.tiles_per_warp)

    @cuda.jit(device=True, inline="always")
    def share_sums(tile_sums, partial, first, warp, lane, tiles):
        total = warp_sums(partial, lane)
        t = int32(first + (lane >> SHIFT) * WARPS + warp)
        if lane & (SHARE - 1) == 0 and (EXACT or t < tiles):
            tile_sums[uint32(t)] = total

    return share_sums


def make_send_sums(config: NormConfig) -> Callable[..., Any]:
    """``send_sums(tile_sums, place, mbarriers, which, partial, warp, lane)``: a warp's sums, to every block of the cluster.

    As above, but ``warp`` counts through the cluster, tile 0 goes to ``place``, and mbarrier ``which`` of each block counts what
    arrives there. Warps that lie past the row's end send their zeros too: a phase that ended without one of them might be over
    twice before it looked.
    """
    SHARE, CLUSTER, ROW_WARPS = 32 // config.tiles_per_warp, config.cluster, config.warps * config.cluster
    SHIFT, warp_sums = log2(SHARE), make_warp_sums(config.tiles_per_warp)
    assert CLUSTER <= SHARE, "each block must have a lane that tells it"

    @cuda.jit(device=True, inline="always")
    def send_sums(tile_sums, place, mbarriers, which, partial, warp, lane):
        total = warp_sums(partial, lane)
        t = int32((lane >> SHIFT) * ROW_WARPS + warp)
        rank = int32(lane & (SHARE - 1))  # lane r of each group of lanes that have this sum tells block r
        if rank < CLUSTER:
            send_to_block(tile_sums, int64(place + t), total, rank, mbarriers, int64(which))

    return send_sums


def make_sum_tiles(most: int) -> Callable[..., Any]:
    """``sum_tiles(tile_sums, place, tiles, lane)``: the row's sum, in every lane, from its warp tiles' (step 4).

    They lie from ``place`` on, ``most`` of them at most. Lanes that would get none repeat those that do, which spares shuffles of
    zeros.
    """
    LANES, TURNS = min(32, 1 << (most - 1).bit_length()), -(-most // 32)

    @cuda.jit(device=True, inline="always")
    def sum_tiles(tile_sums, place, tiles, lane):
        total = float32(0.0)
        for turn in range(TURNS):
            t = int32((lane & (LANES - 1)) + 32 * turn)
            if t < tiles:
                total += tile_sums[uint32(place + t)]
        return butterfly(total, LANES // 2, 1)

    return sum_tiles


# --- the row's sum, by who adds it ----------------------------------------------------------------------------------------


def make_sum_in_warp(config: NormConfig) -> Callable[..., Any]:
    """``sum_row(partial, lane)``: of a row that one warp has, or a part of it. No barrier."""
    TILES, LANES = config.tiles_per_warp, config.lanes
    SHARE, warp_sums = 32 // TILES, make_warp_sums(TILES)

    @cuda.jit(device=True, inline="always")
    def sum_row(partial, lane):
        return butterfly(warp_sums(partial, lane), 16, SHARE) if TILES > 1 else butterfly(partial[0], LANES // 2, 1)

    return sum_row


def make_sum_in_block(config: NormConfig) -> Callable[..., Any]:
    """``sum_row(tile_sums, partial, width, warp, lane)``: of a row that a block has. One barrier.

    Not with ``fixed_tree``: the textbook's sum, all that a thread has, then its warp, then the warps.
    """
    TILES, ALL, EXACT = config.tiles_per_warp, config.tiles_per_warp * config.warps, config.exact
    TILE = 32 * config.vectors_per_lane * config.vector
    TILE_BITS, share_sums, sum_tiles = log2(TILE), make_share_sums(config), make_sum_tiles(ALL)
    sum_by_threads = make_sum_by_threads(config)

    if config.fixed_tree:

        @cuda.jit(device=True, inline="always")
        def sum_row(tile_sums, partial, width, warp, lane):
            tiles = int32(ALL) if EXACT else int32((width + (TILE - 1)) >> TILE_BITS)
            share_sums(tile_sums, partial, int32(0), warp, lane, tiles)
            cuda.syncthreads()
            return sum_tiles(tile_sums, int32(0), tiles, lane)

    else:

        @cuda.jit(device=True, inline="always")
        def sum_row(tile_sums, partial, width, warp, lane):
            total = partial[0]
            for k in range(1, TILES):
                total += partial[k]
            return sum_by_threads(tile_sums, total, warp, lane)

    return sum_row


def make_sum_in_cluster(config: NormConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``send_row(tile_sums, mbarriers, which, partial, warp, lane, thread)`` and ``sum_row(tile_sums, which, width, lane)``.

    Of a row that a cluster has: what every block sends to every block is there when mbarrier ``which`` (0 or 1) ends its phase.
    A persistent kernel's next row is sent there too, and counted by mbarrier ``2 + which``.
    """
    ALL, EXACT, PERSISTENT = config.tiles_per_warp * config.warps * config.cluster, config.exact, config.persistent
    TILE = 32 * config.vectors_per_lane * config.vector
    TILE_BITS, send_sums, sum_tiles = log2(TILE), make_send_sums(config), make_sum_tiles(ALL)

    @cuda.jit(device=True, inline="always")
    def send_row(tile_sums, mbarriers, which, partial, warp, lane, thread):
        if thread == 0:
            arrive_and_expect(mbarriers, int64(which), int32(ALL))
            if PERSISTENT:
                arrive_and_expect(mbarriers, int64(2 + which), int32(1))
        send_sums(tile_sums, which * MAX_TILES, mbarriers, which, partial, warp, lane)

    @cuda.jit(device=True, inline="always")
    def sum_row(tile_sums, which, width, lane):
        tiles = int32(ALL) if EXACT else int32((width + (TILE - 1)) >> TILE_BITS)
        return sum_tiles(tile_sums, which * MAX_TILES, tiles, lane)

    return send_row, sum_row


def make_sum_by_threads(config: NormConfig) -> Callable[..., Any]:
    """``sum_by_threads(warp_sums, total, warp, lane)``: every thread's total, over its warp and then over the block's warps.

    Its order depends on the number of threads, so a row's bits would change with the tuning.
    """
    WARPS, sum_warps = config.warps, make_sum_tiles(config.warps)

    @cuda.jit(device=True, inline="always")
    def sum_by_threads(warp_sums, total, warp, lane):
        of_warp = butterfly(total, 16, 1)
        if lane == 0:
            warp_sums[uint32(warp)] = of_warp
        cuda.syncthreads()
        return sum_warps(warp_sums, int32(0), int32(WARPS), lane)

    return sum_by_threads

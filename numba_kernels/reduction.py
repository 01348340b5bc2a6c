"""The sum over a row, in an order that depends on the row's width alone.

The tree of a row, from its leaves up:

1. *leaf*: ``leaf`` consecutive elements, added first to last (one fused multiply-add each);
2. *chain*: ``chain`` leaves that lie 32 leaves apart, added one after the other by one lane;
3. *segment*: 32 chains side by side, added across the lanes of a warp by a butterfly (distances 16, 8, 4, 2, 1);
4. *row*: segment ``s`` goes to lane ``s % 32``, which adds its segments in rising order; then one more butterfly.

What is missing (a last segment that is not full, a lane without a segment) counts as +0, which changes no bit of a sum of
squares. No step names a thread count: one warp, thirty-two, or a cluster of blocks give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

from numba import cuda, float32, int32, uint32

FULL_WARP = 0xFFFFFFFF
MAX_SEGMENTS = 256  # what the row step keeps in shared memory: 1 KB


@dataclass(frozen=True, slots=True)
class RowTree:
    """The summation tree of one row. ``leaves = width / leaf``; ``segments = ceil(leaves / (32 * chain))``."""

    width: int
    leaf: int
    chain: int
    leaves: int
    segments: int


def row_tree(width: int, itemsize: int) -> RowTree:
    """The tree for a row of ``width`` elements of ``itemsize`` bytes: leaves of 16 bytes where the width allows."""
    leaf = gcd(width, 16 // itemsize)
    leaves = width // leaf
    chain = 1
    while leaves > 32 * chain * MAX_SEGMENTS:
        chain *= 2
    return RowTree(width, leaf, chain, leaves, -(-leaves // (32 * chain)))


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


def make_warp_sums(partials: int) -> Callable[..., Any]:
    """``warp_sums(partial, lane)``: sums of ``partials`` (1, 2, 4 or 8) values a lane, each over the 32 lanes.

    The sum of ``partial[k]`` ends in the lanes with ``lane // (32 // partials) == k``: 5, 5, 6 or 9 shuffles in place of 5 each,
    and the same additions as ``partials`` butterflies.
    """
    if partials == 1:

        @cuda.jit(device=True, inline="always")
        def warp_sums(partial, lane):
            return butterfly(partial[0], 16, 1)

    elif partials == 2:

        @cuda.jit(device=True, inline="always")
        def warp_sums(partial, lane):
            total = exchange(partial[0], partial[1], lane, 16)
            return butterfly(total, 8, 1)

    elif partials == 4:

        @cuda.jit(device=True, inline="always")
        def warp_sums(partial, lane):
            first = exchange(partial[0], partial[2], lane, 16)
            second = exchange(partial[1], partial[3], lane, 16)
            total = exchange(first, second, lane, 8)
            return butterfly(total, 4, 1)

    elif partials == 8:

        @cuda.jit(device=True, inline="always")
        def warp_sums(partial, lane):
            even = exchange(exchange(partial[0], partial[4], lane, 16), exchange(partial[2], partial[6], lane, 16), lane, 8)
            odd = exchange(exchange(partial[1], partial[5], lane, 16), exchange(partial[3], partial[7], lane, 16), lane, 8)
            return butterfly(exchange(even, odd, lane, 4), 2, 1)

    else:
        raise ValueError(f"partials: {partials}; 1, 2, 4 or 8 are supported")
    return warp_sums


def make_sum_segments(most: int) -> Callable[..., Any]:
    """``sum_segments(segment_sums, sums, segments, lane)``: the row's sum, in every lane, from its segments' (step 4).

    They lie from place ``sums`` on, ``most`` of them at most. Lanes that would get none repeat those that do, which spares
    shuffles of zeros.
    """
    LANES, TURNS = min(32, 1 << (most - 1).bit_length()), -(-most // 32)

    @cuda.jit(device=True, inline="always")
    def sum_segments(segment_sums, sums, segments, lane):
        total = float32(0.0)
        for turn in range(TURNS):
            s = int32((lane & (LANES - 1)) + 32 * turn)
            if s < segments:
                total += segment_sums[uint32(sums + s)]
        return butterfly(total, LANES // 2, 1)

    return sum_segments

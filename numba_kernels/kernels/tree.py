"""The order in which a row is summed: a tree that depends on the row's width and its element's size alone.

From its leaves up:

1. *vector*: ``vector`` consecutive elements, added first to last (one fused multiply-add each);
2. *lane*: ``vectors_per_lane`` vectors that lie 32 vectors apart, added one after the other by one lane;
3. *warp tile*: 32 lanes side by side, added across the lanes of a warp by a butterfly (distances 16, 8, 4, 2, 1);
4. *row*: warp tile ``t`` goes to lane ``t % 32``, which adds its tiles in rising order; then one more butterfly.

What is missing (a last tile that is not full, a lane without a tile) counts as +0, which changes no bit of a sum of squares. No
step names a thread count: one warp, thirty-two, or a cluster of blocks give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

MAX_TILES = 256  # what the row step keeps in shared memory: 1 KB


@dataclass(frozen=True, slots=True)
class RowTree:
    """The summation tree of one row. ``vectors = width / vector``; ``tiles = ceil(vectors / (32 * vectors_per_lane))``."""

    width: int
    vector: int
    vectors_per_lane: int
    vectors: int
    tiles: int


def row_tree(width: int, itemsize: int) -> RowTree:
    """The tree for a row of ``width`` elements of ``itemsize`` bytes: vectors of 16 bytes where the width allows."""
    vector = gcd(width, 16 // itemsize)
    vectors = width // vector
    vectors_per_lane = 1
    while vectors > 32 * vectors_per_lane * MAX_TILES:
        vectors_per_lane *= 2
    return RowTree(width, vector, vectors_per_lane, vectors, -(-vectors // (32 * vectors_per_lane)))

"""ULP distances in bins a person can read: 0, 1, 2, 3-4, 5-8, and so on, each below and above."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bin:
    """Elements `low` to `high` ULP apart: `below` with the candidate the smaller value, `above` with it the larger."""

    low: int
    high: int
    below: int
    above: int

    @property
    def label(self) -> str:
        """`0`, `±1`, `±3 to 4`."""
        sign = "±" if self.high else ""
        return f"{sign}{self.low}" if self.low == self.high else f"{sign}{self.low} to {self.high}"

    @property
    def count(self) -> int:
        """Elements on both sides; `0` counts once."""
        return self.below + self.above


def bins(histogram: Mapping[int, int]) -> list[Bin]:
    """The bins from 0 up to the largest distance; bin k > 0 holds the distances in (2^(k-2), 2^(k-1)]."""
    if not histogram:
        return []
    top = max(abs(distance) for distance in histogram)
    below: dict[int, int] = {}
    above: dict[int, int] = {}
    for distance, count in histogram.items():
        side = below if distance < 0 else above
        side[_bin(abs(distance))] = side.get(_bin(abs(distance)), 0) + count
    edges = [(0, 0)] + [((1 << (k - 1) >> 1) + 1, 1 << (k - 1)) for k in range(1, _bin(top) + 1)]
    return [Bin(low, high, below.get(k, 0), above.get(k, 0)) for k, (low, high) in enumerate(edges)]


def _bin(distance: int) -> int:
    return 0 if distance == 0 else (distance - 1).bit_length() + 1


def log_bar(count: int, largest: int, width: int) -> str:
    """A bar whose length grows with the logarithm of the count: one element is visible beside a million."""
    if count == 0:
        return ""
    return "█" * max(1, round(width * math.log1p(count) / math.log1p(largest)))

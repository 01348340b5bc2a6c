"""What a pass over pairs has found so far, as plain data that a file can hold and another pass can add to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from difftest.exhaustive import slots
from difftest.report.bins import Bin
from difftest.verdict.ulp import MISMATCH_CLASSES

MOST_WORST = 8  # pairs kept


@dataclass(slots=True)
class Tally:
    """`counts`: pairs by slot (slots.py). `worst`: the worst pairs as keys, the worst first, of different blocks of the grid."""

    counts: list[int] = field(default_factory=lambda: [0] * slots.SLOTS)
    worst: list[int] = field(default_factory=list)

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        return Tally(counts, sorted({*self.worst, *other.worst}, reverse=True)[:MOST_WORST])

    @classmethod
    def read(cls, counts: torch.Tensor, worst: torch.Tensor) -> Tally:
        """From what the judging kernels filled; waits for them."""
        keys = worst[worst > 0].unique().cpu().sort(descending=True).values[:MOST_WORST]
        return cls(counts.view(-1, slots.SLOTS).sum(dim=0).tolist(), keys.tolist())

    @property
    def pairs(self) -> int:
        """Pairs looked at."""
        return sum(self.counts[slot] for slot in (slots.JUDGED, slots.BY_CLASS, slots.OPEN))

    @property
    def wrong(self) -> int:
        """Outputs that are unattainable, of another class or zeros of the wrong sign; residuals that are not the rounded sum."""
        ways = (slots.UNATTAINABLE, slots.WRONG_CLASS, slots.WRONG_ZERO, slots.WRONG_RESIDUAL)
        return sum(self.counts[slot] for slot in ways)

    def histogram(self) -> list[Bin]:
        """Distances to the correctly rounded value."""
        return slots.histogram(self.counts)

    def classes(self) -> dict[str, int]:
        """Bounded outputs of another class than the correctly rounded value, by what they are; none left out but zeros."""
        found = zip(MISMATCH_CLASSES, self.counts[slots.CLASSES : slots.BELOW], strict=True)
        return {name: count for name, count in found if count}

    def to_json(self) -> dict[str, Any]:
        """Plain data; `counts` and `worst` are what `from_json` reads, the rest is for a reader."""
        named = {
            "pairs": self.pairs,
            "judged": self.counts[slots.JUDGED],
            "by_class": self.counts[slots.BY_CLASS],
            "open": self.counts[slots.OPEN],
            "more_than_one_value": self.counts[slots.EXPLAINED],
            "wrong": self.wrong,
            "unattainable": self.counts[slots.UNATTAINABLE],
            "wrong_class": self.counts[slots.WRONG_CLASS],
            "wrong_zero": self.counts[slots.WRONG_ZERO],
            "wrong_residual": self.counts[slots.WRONG_RESIDUAL],
            "undecided": self.counts[slots.UNDECIDED],
        }
        bins = [{"ulp": [each.low, each.high], "below": each.below, "above": each.above} for each in self.histogram()]
        return {**named, "histogram": bins, "classes": self.classes(), "counts": self.counts, "worst_keys": self.worst}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Tally:
        """What `to_json` made. ValueError where it is something else."""
        counts, worst = record.get("counts"), record.get("worst_keys")
        if not isinstance(counts, list) or len(counts) != slots.SLOTS or not isinstance(worst, list):
            raise ValueError(f"no tally of {slots.SLOTS} counts")
        return cls([int(count) for count in counts], [int(key) for key in worst])

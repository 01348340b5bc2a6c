"""One output of two implementations side by side: counts, the ULP histogram, class mismatches and the worst element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from difftest.verdict import ulp
from difftest.verdict.worst import Element, worst


@dataclass(frozen=True, slots=True)
class Comparison:
    """`mismatches` counts every element that is not the same value: other distances than 0, and class mismatches.

    `histogram`: signed ULP distance as a string -> elements. `classes`: class mismatch -> elements. Together they count
    every element once. `worst` is a class mismatch if there is one, else the largest distance; None if all agree.
    """

    elements: int
    mismatches: int
    max_ulp: int
    histogram: dict[str, int] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    worst: Element | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare(actual: torch.Tensor, expected: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> Comparison:
    """Compares two tensors of one shape and dtype; `inputs`: the call's, by role (`Operator.split`), to show at the worst."""
    found = ulp.distance(actual, expected)
    size = found.ulp.abs()
    classes = ulp.class_counts(found)
    return Comparison(
        elements=size.numel(),
        mismatches=int(size.count_nonzero()) + sum(classes.values()),
        max_ulp=int(size.max()) if size.numel() else 0,
        histogram=ulp.histogram(found),
        classes=classes,
        worst=worst(found, actual, expected, inputs),
    )

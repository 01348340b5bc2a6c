"""One output of two implementations side by side: counts, the ULP histogram, class mismatches and the worst element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from difftest.verdict import ulp
from reference.formats import hex_bits


@dataclass(frozen=True, slots=True)
class Element:
    """One element of the output: where, what each side has (value and bits), how far apart, and its inputs' bits."""

    index: tuple[int, ...]
    actual: str
    expected: str
    apart: str  # "+3 ULP", or the name of a class mismatch
    inputs: dict[str, str]


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
        worst=_worst(found, actual, expected, inputs),
    )


def _worst(
    found: ulp.Distance, actual: torch.Tensor, expected: torch.Tensor, inputs: Mapping[str, torch.Tensor]
) -> Element | None:
    if not actual.numel():
        return None
    weight = torch.where(found.comparable, found.ulp.abs(), torch.iinfo(torch.int64).max)
    flat = int(weight.argmax())
    if not int(weight.flatten()[flat]):
        return None
    width = actual.shape[-1]
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), actual.shape))
    apart = f"{int(found.ulp.flatten()[flat]):+d} ULP"
    for name, mask in found.classes.items():
        if bool(mask.flatten()[flat]):
            apart = name
    return Element(index, _shown(actual, flat), _shown(expected, flat), apart, _inputs_at(inputs, flat, width))


def _inputs_at(inputs: Mapping[str, torch.Tensor], flat: int, width: int) -> dict[str, str]:
    """The inputs' values at an output's element: of rows as many as the output's, or of one vector for all of them."""
    return {name: _shown(tensor, flat if tensor.numel() > width else flat % width) for name, tensor in inputs.items()}


def _shown(tensor: torch.Tensor, flat: int) -> str:
    value = tensor.reshape(-1)[flat]
    return f"{value.item():.9g} ({hex_bits(value)})"

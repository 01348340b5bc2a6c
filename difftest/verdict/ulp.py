"""ULP distance between tensors of one dtype, through integer views: no subtraction of floats, no `nextafter`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from reference.formats import bits, of

# A pair whose members are of different classes has no distance; it is counted under one of these names instead.
NAN_FOR_NUMBER = "NaN for a number"
NUMBER_FOR_NAN = "number for NaN"
INF_FOR_FINITE = "Inf for finite"
FINITE_FOR_INF = "finite for Inf"
WRONG_INF = "Inf of the other sign"
MISMATCH_CLASSES = (NAN_FOR_NUMBER, NUMBER_FOR_NAN, INF_FOR_FINITE, FINITE_FOR_INF, WRONG_INF)


def ordered(tensor: torch.Tensor) -> torch.Tensor:
    """Each value's place on the integer line of its dtype, int64: adjacent floats differ by 1, both zeros are 0.

    Defined for finite values and infinities; a NaN's place means nothing. int64 holds any difference of two places.
    """
    pattern = bits(tensor).to(torch.int64)
    magnitude = pattern & ((1 << (8 * of(tensor.dtype).itemsize - 1)) - 1)
    return torch.where(pattern < 0, -magnitude, magnitude)


@dataclass(frozen=True, slots=True)
class Distance:
    """`actual` against `expected`, element by element.

    `ulp`: int64, signed, positive where actual is the larger; 0 where `comparable` is False.
    `comparable`: both finite, or the same infinity, or both NaN (distance 0, whatever the payload).
    `classes`: class mismatch name -> mask of the elements that it covers; disjoint, together `~comparable`.
    """

    ulp: torch.Tensor
    comparable: torch.Tensor
    classes: dict[str, torch.Tensor]


def distance(actual: torch.Tensor, expected: torch.Tensor) -> Distance:
    """Signed ULP distance of two tensors of one dtype (fp32, fp16, bf16) and one shape, and their class mismatches."""
    if actual.dtype != expected.dtype:
        raise TypeError(f"ULP distance needs one dtype, got {actual.dtype} and {expected.dtype}")
    if actual.shape != expected.shape:
        raise ValueError(f"ULP distance needs one shape, got {tuple(actual.shape)} and {tuple(expected.shape)}")
    place_a, place_e = ordered(actual), ordered(expected)
    infinity = int(ordered(torch.tensor(float("inf"), dtype=actual.dtype)))
    nan_a, nan_e = place_a.abs() > infinity, place_e.abs() > infinity
    inf_a, inf_e = place_a.abs() == infinity, place_e.abs() == infinity
    classes = {
        NAN_FOR_NUMBER: nan_a & ~nan_e,
        NUMBER_FOR_NAN: nan_e & ~nan_a,
        INF_FOR_FINITE: inf_a & ~inf_e & ~nan_e,
        FINITE_FOR_INF: inf_e & ~inf_a & ~nan_a,
        WRONG_INF: inf_a & inf_e & (place_a != place_e),
    }
    comparable = ~torch.stack(tuple(classes.values())).any(0)
    number = comparable & ~nan_a
    ulp = torch.where(number, place_a - place_e, torch.zeros_like(place_a))
    return Distance(ulp, comparable, classes)


def histogram(found: Distance) -> dict[str, int]:
    """Signed distance as a string -> number of elements, in the order of the distances; comparable elements only."""
    values, counts = torch.unique(found.ulp[found.comparable], return_counts=True)
    return {str(v): c for v, c in zip(values.tolist(), counts.tolist(), strict=True)}


def class_counts(found: Distance) -> dict[str, int]:
    """Class mismatch name -> number of elements; names with none are left out."""
    counts = {name: int(mask.sum()) for name, mask in found.classes.items()}
    return {name: count for name, count in counts.items() if count}

"""The real numbers that round to a given storage value, as an interval with float64 ends.

The ends are midpoints between neighbours, so they have one bit more than the storage dtype and are exact in float64.
Imports torch.
"""

from __future__ import annotations

import math

import torch

# Explicit significand bits, exponent of the smallest normal number.
FORMATS: dict[torch.dtype, tuple[int, int]] = {
    torch.float16: (10, -14),
    torch.bfloat16: (7, -126),
    torch.float32: (23, -126),
}


def rounding_cell(stored: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The closed interval (lowest, highest), float64, of reals that round to `stored` (fp16, bf16, fp32, any shape).

    Both ends are ties: an end belongs to the cell itself only where the stored significand is even. The cell of an
    infinity begins where overflow does and is unbounded; that of either zero spans both signs; a NaN has a NaN cell.
    """
    fraction_bits, smallest_exponent = FORMATS[stored.dtype]
    value = stored.double()
    magnitude = value.abs()
    # Integer steps on a float64 pattern stay inside a binade or cross it downwards at half the step: as the neighbours.
    half_step = 1 << (51 - fraction_bits)
    pattern = magnitude.view(torch.int64)
    highest = (pattern + half_step).view(torch.float64)
    lowest = (pattern - half_step).view(torch.float64)
    # Up to the smallest normal number the spacing is constant.
    spaced_evenly = magnitude <= 2.0**smallest_exponent
    half_ulp = 2.0 ** (smallest_exponent - fraction_bits - 1)
    highest = torch.where(spaced_evenly, magnitude + half_ulp, highest)
    lowest = torch.where(spaced_evenly, magnitude - half_ulp, lowest)
    infinite = magnitude == torch.inf
    if bool(infinite.any()):
        highest = torch.where(infinite, magnitude, highest)
        lowest = torch.where(infinite, overflow_boundary(stored.dtype), lowest)
    negative = value < 0
    return torch.where(negative, -highest, lowest), torch.where(negative, -lowest, highest)


def overflow_boundary(dtype: torch.dtype) -> float:
    """The smallest magnitude that rounds to infinity: the largest finite value plus half its ulp."""
    largest = torch.finfo(dtype).max
    exponent = math.frexp(largest)[1] - 1
    return largest + 2.0 ** (exponent - FORMATS[dtype][0] - 1)


def ulp_of(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The spacing of `dtype` at each float64 `value` (that of its binade; constant among subnormals), float64."""
    fraction_bits, smallest_exponent = FORMATS[dtype]
    biased = (value.view(torch.int64) >> 52) & 0x7FF
    exponent = torch.clamp(biased - 1023, min=smallest_exponent) - fraction_bits
    return ((exponent + 1023) << 52).view(torch.float64)

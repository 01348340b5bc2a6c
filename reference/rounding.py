"""Rounding float64 to a storage dtype, once, and the interval of reals that rounds to a stored value.

torch's own float64 -> bfloat16 (and, on some devices, -> float16) goes through float32, which rounds twice and is
wrong for values just beside a tie.
"""

from __future__ import annotations

import math

import torch

from reference.formats import FORMATS, of

STORAGE_DTYPES: tuple[torch.dtype, ...] = tuple(each.torch for each in FORMATS.values())


def round_from_f64(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`value` (float64, any shape) rounded once to `dtype`: nearest, ties to even, gradual underflow, overflow to Inf.

    The value is first brought to the target's precision as a whole number of ulp, exactly, so that the conversion
    which follows has nothing left to round. NaN stays NaN, signed zeros keep their sign.
    Raises TypeError for a `value` that is not float64 or a `dtype` other than float16, bfloat16, float32.
    """
    if value.dtype is not torch.float64:
        raise TypeError(f"expected a float64 tensor, got {value.dtype}")
    if dtype not in STORAGE_DTYPES:
        raise TypeError(f"cannot round to {dtype}; known: {', '.join(map(str, STORAGE_DTYPES))}")
    target = of(dtype)
    _, exponent = torch.frexp(value)  # value = m * 2**exponent with 0.5 <= |m| < 1
    ulp_exponent = torch.clamp(exponent - 1, min=target.smallest_exponent) - target.fraction_bits
    ulp = ((ulp_exponent.long() + 1023) << 52).view(torch.float64)  # 2**ulp_exponent by its bits: normal in float64
    # torch.round rounds halves to even; the quotient by a power of two is exact unless it is far below one half.
    steps = torch.round(value / ulp)
    rounded = torch.where(torch.isfinite(value), steps * ulp, value)
    return torch.copysign(rounded, value).to(dtype)


def rounding_interval(stored: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The closed interval (lowest, highest), float64, of reals that round to `stored` (fp16, bf16, fp32, any shape).

    Both ends are ties: an end belongs to the interval itself only where the stored significand is even. That of an
    infinity begins where overflow does and is unbounded; that of either zero spans both signs; that of a NaN is NaN.
    The ends are midpoints between neighbours: one bit more than the storage dtype has, exact in float64.
    """
    stored_in = of(stored.dtype)
    value = stored.double()
    magnitude = value.abs()
    # Integer steps on a float64 pattern stay inside a binade or cross it downwards at half the step: as the neighbours.
    half_step = 1 << (51 - stored_in.fraction_bits)
    pattern = magnitude.view(torch.int64)
    highest = (pattern + half_step).view(torch.float64)
    lowest = (pattern - half_step).view(torch.float64)
    # Up to the smallest normal number the spacing is constant.
    spaced_evenly = magnitude <= 2.0**stored_in.smallest_exponent
    half_ulp = 2.0 ** (stored_in.smallest_exponent - stored_in.fraction_bits - 1)
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
    return largest + 2.0 ** (exponent - of(dtype).fraction_bits - 1)


def ulp_of(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The spacing of `dtype` at each float64 `value` (that of its binade; constant among subnormals), float64."""
    target = of(dtype)
    biased = (value.view(torch.int64) >> 52) & 0x7FF
    exponent = torch.clamp(biased - 1023, min=target.smallest_exponent) - target.fraction_bits
    return ((exponent + 1023) << 52).view(torch.float64)

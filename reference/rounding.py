"""Rounding float64 to a 16-bit or 32-bit dtype, once.

torch's own float64 -> bfloat16 (and, on some devices, -> float16) goes through float32, which rounds twice and is
wrong for values just beside a tie. Imports torch.
"""

from __future__ import annotations

import torch

# Explicit significand bits, the exponent of the smallest normal number.
_FORMATS: dict[torch.dtype, tuple[int, int]] = {
    torch.float16: (10, -14),
    torch.bfloat16: (7, -126),
    torch.float32: (23, -126),
}

STORAGE_DTYPES: tuple[torch.dtype, ...] = tuple(_FORMATS)


def round_from_f64(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`value` (float64, any shape) rounded once to `dtype`: nearest, ties to even, gradual underflow, overflow to Inf.

    The value is first brought to the target's precision as a whole number of ulp, exactly, so that the conversion
    which follows has nothing left to round. NaN stays NaN, signed zeros keep their sign.
    Raises TypeError for a `value` that is not float64 or a `dtype` other than float16, bfloat16, float32.
    """
    if value.dtype is not torch.float64:
        raise TypeError(f"expected a float64 tensor, got {value.dtype}")
    if dtype not in _FORMATS:
        raise TypeError(f"cannot round to {dtype}; known: {', '.join(map(str, _FORMATS))}")
    fraction_bits, smallest_exponent = _FORMATS[dtype]
    _, exponent = torch.frexp(value)  # value = m * 2**exponent with 0.5 <= |m| < 1
    ulp_exponent = torch.clamp(exponent - 1, min=smallest_exponent) - fraction_bits
    ulp = ((ulp_exponent.long() + 1023) << 52).view(torch.float64)  # 2**ulp_exponent by its bits: normal in float64
    # torch.round rounds halves to even; the quotient by a power of two is exact unless it is far below one half.
    steps = torch.round(value / ulp)
    rounded = torch.where(torch.isfinite(value), steps * ulp, value)
    return torch.copysign(rounded, value).to(dtype)

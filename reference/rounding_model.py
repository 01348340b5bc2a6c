"""A model of where one row is rounded, in pure Python: the standard library's `struct` does the rounding.

An independent check on `reference.arithmetic`, which uses torch. It explains rounding positions; it does not model a
GPU's reduction order, fused multiply-add or approximate rsqrt, and makes no promise about a device's bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

_CODES = ("R0W0", "R1W0", "R0W1", "R1W1")


def fp32(value: float) -> float:
    """`value` rounded to binary32, ties to even. OverflowError beyond its range.

    The byte order in the format matters: a native `f` would turn an overflow into Inf without a word.
    """
    return struct.unpack("<f", struct.pack("<f", value))[0]


def fp16(value: float) -> float:
    """`value` rounded to binary16, ties to even. OverflowError beyond its range."""
    return struct.unpack("<e", struct.pack("<e", value))[0]


def bf16(value: float) -> float:
    """`value` rounded once to bfloat16, ties to even. OverflowError beyond its range.

    bfloat16 is the upper half of binary32, which `struct` has no letter for: the float64 is rounded directly on a grid
    of whole ulp, because going through binary32 would round twice.
    """
    if value == 0.0 or math.isinf(value) or math.isnan(value):
        return value
    ulp = math.ldexp(1.0, max(math.frexp(value)[1] - 1, -126) - 7)
    rounded = math.copysign(round(value / ulp) * ulp, value)
    if abs(rounded) >= 2.0**128:
        raise OverflowError("float too large to pack with bfloat16 format")
    return rounded


ROUND: dict[str, Callable[[float], float]] = {"fp16": fp16, "bf16": bf16, "fp32": fp32}


def add_rmsnorm_row(
    x: Sequence[float],
    residual: Sequence[float],
    weight: Sequence[float],
    eps: float = 1e-6,
    code: str = "R0W0",
    dtype: str = "bf16",
) -> tuple[list[float], list[float]]:
    """One row of fused_add_rmsnorm under `code`: (output, new residual), as floats that `dtype` holds.

    With T rounding to `dtype` and every operation rounded to fp32: z = T(x) + T(residual); residual' = T(z); h = z (R0)
    or residual' (R1); rstd = 1 / sqrt(sum(h^2) / width + eps), summed left to right; output = T(h * rstd * T(weight))
    (W0) or T(T(h * rstd) * T(weight)) (W1). `width` is the true length of the row.

    Raises ValueError for an empty row, lengths that differ, a value that is not a finite int or float (bool is
    refused), an eps that is not finite and positive in fp32, or an unknown code or dtype; OverflowError where a value
    leaves the range of fp32 or `dtype`, since the model has no Inf. Semantics: FlashInfer 0.7.2's fused_add_rmsnorm
    (R0W0) and transformers' LlamaRMSNorm after a separate add (R1W1).
    """
    if code not in _CODES:
        raise ValueError(f"unknown contract {code!r}; known: {', '.join(_CODES)}")
    if dtype not in ROUND:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(ROUND)}")
    if not x or not len(x) == len(residual) == len(weight):
        raise ValueError("x, residual and weight must be rows of one length, at least 1")
    eps32 = _eps_in_fp32(eps)
    store = ROUND[dtype]

    total = [fp32(store(_finite(a)) + store(_finite(b))) for a, b in zip(x, residual, strict=True)]
    scale = [store(_finite(w)) for w in weight]
    new_residual = [store(z) for z in total]
    hidden = new_residual if code.startswith("R1") else total

    squares = 0.0
    for h in hidden:
        squares = fp32(squares + fp32(h * h))
    rstd = fp32(1.0 / math.sqrt(fp32(fp32(squares / len(hidden)) + eps32)))

    normalised = [fp32(h * rstd) for h in hidden]
    if code.endswith("W1"):
        normalised = [store(value) for value in normalised]
    return [store(fp32(n * w)) for n, w in zip(normalised, scale, strict=True)], new_residual


def _finite(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a finite number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("an integer beyond the range of float64") from None
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {value!r}")
    return number


def _eps_in_fp32(eps: float) -> float:
    try:
        rounded = fp32(_finite(eps))
    except OverflowError:
        raise ValueError(f"eps {eps} is not finite in fp32") from None
    if rounded <= 0.0:
        raise ValueError(f"eps must be positive in fp32, got {eps}")
    return rounded

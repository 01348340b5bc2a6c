"""The error bounds that the oracle, the attainable set and the verdict rest on, each beside its derivation.

Relative errors throughout; those of the activations stand in `activations.py`. `docs/verdict.md` tells the same story
with figures.
"""

from __future__ import annotations

import math

import torch

from reference.operators.declaration import FP32_MAX as FP32_MAX

U32 = 2.0**-24  # unit roundoff of fp32: one correctly rounded operation is off by at most this
U64 = 2.0**-53
FP32_TINY = 2.0**-126  # smallest normal fp32 number
FP32_LAST = 2.0**-149  # spacing of subnormal fp32 numbers: there an operation is off by half of it, absolute

# --- float64, for the oracle -----------------------------------------------------------------------------------------

# v, w, eps and the squares v*v are exact in float64. The compensated sum is off by U64 (its last addition; the
# compensation leaves about 1e-28), the division by the width and the addition of eps by one U64 each, all of it halved
# by the root; then root, reciprocal, times v, times w: 1.5 + 4 = 5.5 U64. Rounded up.
NORM_F64 = 8 * U64

# Below this float64 itself is subnormal, and no relative bound holds; it rounds to zero in every storage dtype.
NEGLIGIBLE = 2.0**-1000

# --- fp32: the root mean square ---------------------------------------------------------------------------------------

# rsqrt.approx.f32 is off by at most 2^-22.9 (PTX ISA, "rsqrt"; CUDA's rsqrtf: 2 ulp). sqrt.rn then rcp.rn: 2^-23.
# sqrt.approx then rcp.approx: 2^-23 + 2^-23. The largest of the three.
RSQRT = 2.0**-22


def additions_in_sequence(width: int) -> int:
    """The longest chain of fp32 additions that a sum over `width` squares is allowed.

    One thread adds at most 128 squares (one warp on 4096), or a 256th of the row if that is more; then a tree of depth
    10 (32 lanes, 32 warps). Any order may be used inside that. A row of up to 138 may be added by a single thread.
    """
    return min(width - 1, max(128, -(-width // 256)) + 10)


def mean_square_error(additions: int) -> float:
    """fp32 bound on sum(v*v) / width: the squares are not negative, so each addition on a chain costs at most U32.

    One more for the square, two for the mean (1/width rounded, then multiplied). An FMA only removes roundings.
    """
    return (additions + 3) * U32


def rstd_error(additions: int, mean_square: torch.Tensor, shifted: torch.Tensor) -> torch.Tensor:
    """fp32 bound on rstd, per row; `shifted` is mean_square + eps, both float64. Infinite where fp32 has no digit left.

    shifted is off by the share of it that is mean square times that bound, U32 for adding eps, and 2^-125 absolute if
    subnormal squares and their mean are flushed to zero. (1 - t)^(-1/2) <= 1 + t/2 + t^2 for t <= 1/2.
    """
    error = mean_square_error(additions) * mean_square / shifted + U32 + 2 * FP32_TINY / shifted
    bound = error / 2 + error.square() + RSQRT
    return torch.where((error <= 0.5) & (shifted >= 2 * FP32_TINY), bound, torch.full_like(bound, math.inf))


# What may be wrong with the rstd of every row alike: the root, the reciprocal of the width and the sum with eps.
RSTD_BIAS = RSQRT + 1.5 * U32


def rstd_deviation(additions: int) -> float:
    """The standard deviation of a row's rstd error, where rounding errors behave as if random.

    An addition is off by at most U32 of its partial sum, uniformly: U32 / sqrt(3). A chain of n equal squares has partial
    sums of 1/n to n/n, whose squares add up to n/3: U32 sqrt(n) / 3 for the sum, half of it for rstd; more lanes than one
    average it. One U32 for the square, the mean and the root.
    """
    return U32 * math.sqrt(additions / 36 + 1)


def product_error(factors: int, biased: bool) -> float:
    """fp32 bound on a product of `factors` + 1 numbers in any association; one more where a bias is fused into an FMA.

    (weight + bias) * h as fma(weight, h, bias * h) skips the rounding of the biased weight that the contract names.
    The last term covers products of bounds and the float64 that they are compared in.
    """
    return (factors + int(biased)) * U32 * (1 + 2.0**-16)

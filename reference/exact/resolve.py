"""One element at a time, exactly: integers for the norms, mpmath with rising precision for the activations.

The oracle calls this for the few elements that float64 leaves undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mpmath
import torch

from reference.formats import of

_SCALE = 320  # binary digits kept behind the point; the finest tie of any storage dtype is at 2^-150


def square_sum(row: Sequence[float]) -> int:
    """sum(v * v) * 2^298 over fp32 values, as an exact integer."""
    return sum(int(math.ldexp(v, 149)) ** 2 for v in row)


def norm_value(hidden: float, weight: float, squares: int, width: int, eps: float, dtype: torch.dtype) -> float:
    """hidden * weight / sqrt(squares / width + eps) rounded once to `dtype`, ties to even; `squares` from `square_sum`.

    The square of the result is the rational (hidden * weight)^2 * width / (sum + width * eps). Its integer square root
    is exact or is known to be not, which is all that rounding needs. eps is an fp32 number. Raises ZeroDivisionError
    for a row of zeros with eps 0.
    """
    product_numerator, product_denominator = hidden.as_integer_ratio()
    weight_numerator, weight_denominator = weight.as_integer_ratio()
    eps_numerator, eps_denominator = eps.as_integer_ratio()
    numerator = (product_numerator * weight_numerator) ** 2 * width * eps_denominator << 298
    denominator = (product_denominator * weight_denominator) ** 2 * (squares * eps_denominator + (width * eps_numerator << 298))
    scaled, remainder = divmod(numerator << 2 * _SCALE, denominator)
    root = math.isqrt(scaled)
    inexact = remainder != 0 or root * root != scaled
    magnitude = _round(root, inexact, dtype)
    return math.copysign(magnitude, hidden) * math.copysign(1.0, weight)


def gated_value(factor: Callable[[mpmath.mpf], mpmath.mpf], gate: float, product: float, dtype: torch.dtype) -> float:
    """factor(gate) * product rounded once to `dtype`; the factor is positive and never a tie but at zero.

    `factor` gives it in mpmath's precision of the moment. Raises ArithmeticError beside a tie in 10 240 bits.
    """
    if product == 0.0:
        return product
    for precision in (160, 640, 2560, 10240):
        with mpmath.workprec(precision):
            value = factor(mpmath.mpf(gate)) * abs(mpmath.mpf(product))
            slack = mpmath.ldexp(1, 32 - precision)  # mpmath's functions are right to a few units of its precision
            ends = {_round_mpf(value * (1 + sign * slack), dtype) for sign in (-1, 1)}
        if len(ends) == 1:
            return math.copysign(ends.pop(), product)
    raise ArithmeticError(f"the activation's factor at {gate!r}, times {product!r}, is beside a tie even in 10 240 bits")


def _round_mpf(value: mpmath.mpf, dtype: torch.dtype) -> float:
    scaled = mpmath.ldexp(value, _SCALE)
    floor = int(mpmath.floor(scaled))
    return _round(floor, scaled != floor, dtype)


def _round(scaled: int, inexact: bool, dtype: torch.dtype) -> float:
    """The value in [scaled, scaled + 1) * 2^-320, above its left end if `inexact`, to nearest, ties to even."""
    fraction_bits, smallest_exponent = of(dtype).fraction_bits, of(dtype).smallest_exponent
    exponent = scaled.bit_length() - 1 - _SCALE
    ulp_exponent = max(exponent, smallest_exponent) - fraction_bits
    shift = ulp_exponent + _SCALE
    steps, rest = divmod(scaled, 1 << shift)
    half = 1 << (shift - 1)
    if rest > half or (rest == half and (inexact or steps % 2)):
        steps += 1
    rounded = math.ldexp(steps, ulp_exponent)
    return rounded if rounded <= torch.finfo(dtype).max else math.inf

"""``exp`` and ``erfc`` in fp32: libdevice's steps, spelled out, so that the emulator takes the same ones.

Every fused multiply-add is named. The steps were read from the PTX that libNVVM makes of libdevice; over all 2^32 arguments the
results have its bits.
"""

from __future__ import annotations

from numba import cuda, float32

from ..backend.arithmetic import (
    absolute,
    exp2_approx_ftz,
    fma,
    power_of_two,
    reciprocal_approx,
    saturated,
    sum_rounded_down,
    truncated,
)

LOG2_E = float32(1.442695)  # upper and lower part
LOG2_E_REST = float32(1.925963e-08)
LN_2 = float32(0.6931472)
LN_2_REST = float32(1.9046542e-09)

# 1.5 * 2^23 + k: a sum whose last bit is worth 1, so that its last eight bits hold an exponent, biased by 127.
EXPONENT = float32(12583039.0)  # + n holds n
LEAST = float32(12582913.0)  # holds -126, the least exponent; 252 more is the greatest
EXPONENTS = float32(252.0)
LOG2_E_SHARE = float32(0.00572498)  # log2 e / 252


@cuda.jit(device=True, inline="always")
def exp(x):
    """``e^x = 2^n * 2^rest`` with ``n = floor(x log2 e + 1/2)``, held within -126 and 126."""
    exponent = sum_rounded_down(saturated(fma(x, LOG2_E_SHARE, float32(0.5))), EXPONENTS, LEAST)
    n = exponent - EXPONENT
    rest = fma(x, LOG2_E_REST, fma(x, LOG2_E, -n))
    return exp2_approx_ftz(rest) * power_of_two(exponent)


@cuda.jit(device=True, inline="always")
def erfc(x):
    """``1 - erf(x)``, by a polynomial for ``(1 + 2a) e^(a²) erfc(a)`` in ``t = (a - 4) / (a + 4)``, where a is ``|x|``."""
    a = absolute(x)
    inverse = reciprocal_approx(a + float32(4.0))
    t = (a - float32(4.0)) * inverse
    t = fma(inverse, fma(-t, a, fma(float32(-4.0), t + float32(1.0), a)), t)  # one step of Newton's

    p = fma(float32(0.0008912171), t, float32(0.007045788))
    p = fma(p, t, float32(-0.015866896))
    p = fma(p, t, float32(0.036429625))
    p = fma(p, t, float32(-0.06664343))
    p = fma(p, t, float32(0.09381453))
    p = fma(p, t, float32(-0.10099056))
    p = fma(p, t, float32(0.068094))
    p = fma(p, t, float32(0.015377387))
    p = fma(p, t, float32(-0.13962108))
    p = fma(p, t, float32(1.2329952))

    inverse = reciprocal_approx(fma(float32(2.0), a, float32(1.0)))
    scaled = p * inverse
    scaled = fma(fma(a, scaled * float32(-2.0), p) - scaled, inverse, scaled)  # another

    # e^(-a²), and what rounding a² left off as a correction
    square = a * a
    n = truncated(-square * LOG2_E)
    n = float32(-126.0) if n < float32(-126.0) else n
    rest = fma(n, LN_2_REST, fma(n, -LN_2, -square))
    decay = exp2_approx_ftz(rest * LOG2_E) * power_of_two(n + EXPONENT)
    decay = fma(decay, fma(-a, a, square), decay)

    tail = float32(0.0) if a > float32(10.055) else scaled * decay
    return float32(2.0) - tail if x < float32(0.0) else tail

"""The GPU's approximate functions on the CPU, bit for bit: the special function unit's own interpolation.

Over one period of its argument a function is a quadratic in each of 64 or 128 segments, in whole numbers; the square comes from a
multiplier without its lower partial products (S. Oberman, M. Siu, "A High-Performance Area-Efficient Multifunction Interpolator",
2005). The coefficients were inferred from measured results: they give every one of a period's, and over all 2^32 arguments the
results have no exception (sm_90.json; benchmarks/approx_tables.py measures).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types, uint64
from numba.extending import register_jitable

from .codegen import F32, I32, I64

FILE = Path(__file__).with_name("sm_90.json")
# Of its coefficients: it is part of the key of code that is kept on disk.
SHA256 = "761851aacd882ce3009b62f85d59d816c7397ea21ed90d7da0be232937344e34"
NAN, INF, SIGN, ONE = 0x7FFFFFFF, 0x7F800000, 0x80000000, 0x3F800000
LEAST_NORMAL, MANTISSA = 0x00800000, 0x007FFFFF


def measured() -> dict[str, Any]:
    """Card, driver, date; the coefficients; for each instruction its exceptions among all arguments, and special values."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def coefficients(name: str) -> np.ndarray:
    """int64 [3 * segments]: c0, c1, c2 of each segment. ValueError if the file's are not those that were measured."""
    every = measured()["coefficients"]
    if hashlib.sha256(json.dumps(every).encode()).hexdigest() != SHA256:
        raise ValueError(f"{FILE} does not hold the coefficients that were measured")
    return np.array(every[name], np.int64).ravel()


# --- from an argument's bits to the result's, in int64: plain functions, for whoever compiles them -----------------------------


def _partial_products(first: int) -> np.ndarray:
    """uint8 [16 * 128]: of four bits of one factor, those from place ``first`` on, and seven of another, the sum of the partial
    products, each without the places below 2^7.
    """
    return np.array([sum(t >> (7 - first - h) for h in range(4) if u >> h & 1) for u in range(16) for t in range(128)], np.uint8)


def make_square(low: int) -> Callable[..., Any]:
    """``square(d)``: d² / 2^(2 low + 1) of a number of 8 + low bits, by the partial products from that place up: of its upper
    eight bits' square all but the last, of twice their product with the lower ones those that reach it, of the lower ones' none.
    """
    FIRST, SECOND = _partial_products(0), _partial_products(4)

    def square(d):
        upper, lower = d >> low, (d >> (low - 7)) & 127
        return (upper * upper >> 1) + FIRST[uint64((upper & 15) << 7 | lower)] + SECOND[uint64(upper >> 4 << 7 | lower)]

    return square


def make_period(name: str, low: int, square: Callable[..., Any]) -> Callable[..., Any]:
    """``period(k)``: the bits for argument number k of a period whose segments have 2^(8 + low) arguments each."""
    C, WIDTH, BELOW = coefficients(name), 8 + low, (1 << (8 + low)) - 1

    def period(k):
        d, at = k & BELOW, 3 * (k >> WIDTH)
        return (C[uint64(at)] + C[uint64(at + 1)] * d + C[uint64(at + 2)] * square(d)) >> WIDTH

    return period


def make_rsqrt(period: Callable[..., Any]) -> Callable[..., Any]:
    """``rsqrt.approx.f32``, from [1, 4)."""

    def rsqrt(bits):
        magnitude = bits & NAN
        if magnitude > INF or (bits >= SIGN and magnitude > 0):
            return NAN
        if magnitude == 0:
            return INF | bits
        if magnitude == INF:
            return 0
        exponent = magnitude >> 23
        if exponent == 0:
            exponent = 1
            while magnitude < LEAST_NORMAL:
                magnitude <<= 1
                exponent -= 1
        exponent -= 127
        k = (exponent & 1) << 23 | (magnitude & MANTISSA)
        return (period(k) if k > 0 else ONE) - ((exponent >> 1) << 23)

    return rsqrt


def make_reciprocal_ftz(period: Callable[..., Any]) -> Callable[..., Any]:
    """``rcp.approx.ftz.f32``, from [1, 2)."""

    def reciprocal_ftz(bits):
        magnitude = bits & NAN
        found = period(magnitude & MANTISSA) - (((magnitude >> 23) - 127) << 23)
        found = found if found >= LEAST_NORMAL else 0
        found = found if magnitude >= LEAST_NORMAL else INF
        found |= bits & SIGN
        return found if magnitude <= INF else NAN

    return reciprocal_ftz


def make_exp2_ftz(period: Callable[..., Any]) -> Callable[..., Any]:
    """``ex2.approx.ftz.f32``, from [0, 1) in steps of 2^-23."""

    def exp2_ftz(bits):
        magnitude = bits & NAN
        places = min(max((magnitude >> 23) - 127, -24), 8)
        fixed = ((magnitude & MANTISSA) | LEAST_NORMAL) << (places + 24) >> 24  # 23 places, the others cut off
        whole, part = fixed >> 23, fixed & MANTISSA
        negative = bits >= SIGN and part > 0  # 2^-x is 2^(1 - x) / 2, with 1 - x in one's complement
        found = period(part ^ (MANTISSA if negative else 0))
        whole = ~whole if negative else (-whole if bits >= SIGN else whole)
        found += whole << 23
        found = found if found >= LEAST_NORMAL else 0
        found = found if found < INF else INF
        return found if magnitude <= INF else NAN

    return exp2_ftz


# --- code for the CPU -----------------------------------------------------------------------------------------------------------


class Approximation:
    """A function by its coefficients' name, the places below its segments' upper eight, and what follows from a period."""

    def __init__(self, name: str, low: int, make_rule: Callable[..., Any]) -> None:
        self.name, self.low, self.make_rule = name, low, make_rule
        self.rule = self.make(register_jitable(no_cpython_wrapper=True, no_cfunc_wrapper=True))

    def make(self, compiled: Callable[[Any], Any]) -> Callable[..., Any]:
        """The rule, a plain function, over parts that are compiled."""
        return self.make_rule(compiled(make_period(self.name, self.low, compiled(make_square(self.low)))))

    def emit(self, context: Any, builder: Any, x: Any) -> Any:
        """Code for the CPU."""
        bits = builder.zext(builder.bitcast(x, I32), I64)
        found = context.compile_internal(builder, self.rule, types.int64(types.int64), [bits])
        return builder.bitcast(builder.trunc(found, I32), F32)


RSQRT = Approximation("rsqrt", 9, make_rsqrt)
RECIPROCAL_FTZ = Approximation("rcp", 8, make_reciprocal_ftz)
EXP2_FTZ = Approximation("ex2", 9, make_exp2_ftz)


def rsqrt(context: Any, builder: Any, x: Any) -> Any:
    """``rsqrt.approx.f32``."""
    return RSQRT.emit(context, builder, x)


def reciprocal_ftz(context: Any, builder: Any, x: Any) -> Any:
    """``rcp.approx.ftz.f32``."""
    return RECIPROCAL_FTZ.emit(context, builder, x)


def exp2_ftz(context: Any, builder: Any, x: Any) -> Any:
    """``ex2.approx.ftz.f32``."""
    return EXP2_FTZ.emit(context, builder, x)


def exp2(context: Any, builder: Any, x: Any) -> Any:
    """``ex2.approx.f32``: below -126 the square of the result for half the argument, subnormal results kept."""
    low = builder.fcmp_ordered("<", x, ir.Constant(F32, -126.0))
    found = exp2_ftz(context, builder, builder.select(low, builder.fmul(x, ir.Constant(F32, 0.5)), x))
    return builder.select(low, builder.fmul(found, found), found)

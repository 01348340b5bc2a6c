"""Arithmetic in fp32: on vectors, elementwise, and the scalar functions that PTX has and Numba does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from . import approximate
from .codegen import F32, I32, asm, elements, make_tuple, on_gpu


def _elementwise(emit: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise operation on vectors; a scalar operand is used for every element."""

    @intrinsic
    def binary(typingctx, a, b):
        if not isinstance(a, types.UniTuple):
            return None

        def codegen(context, builder, sig, args):
            count = sig.args[0].count
            left = elements(builder, args[0], count)
            is_vector = isinstance(sig.args[1], types.UniTuple)
            right = elements(builder, args[1], count) if is_vector else [args[1]] * count
            return make_tuple(context, builder, sig.return_type, [emit(builder, x, y) for x, y in zip(left, right, strict=True)])

        return a(a, b if isinstance(b, types.UniTuple) else types.float32), codegen

    return binary


vector_add = _elementwise(lambda builder, a, b: builder.fadd(a, b))
vector_mul = _elementwise(lambda builder, a, b: builder.fmul(a, b))


def _every_second(first: int) -> Callable[..., Any]:
    """``operation(vector) -> vector`` of half its elements."""

    @intrinsic
    def operation(typingctx, vector):
        def codegen(context, builder, sig, args):
            kept = elements(builder, args[0], sig.args[0].count)[first::2]
            return make_tuple(context, builder, sig.return_type, kept)

        return types.UniTuple(vector.dtype, vector.count // 2)(vector), codegen

    return operation


# The two parts of a vector of interleaved pairs: elements 0, 2, 4, … and 1, 3, 5, …
vector_evens, vector_odds = _every_second(0), _every_second(1)


@intrinsic
def keep_if(typingctx, condition, vector):
    """The vector where the condition holds, zeros where not (``selp``): no branch, so earlier loads stay in flight together."""

    def codegen(context, builder, sig, args):
        zero = ir.Constant(F32, 0.0)
        kept = [builder.select(args[0], v, zero) for v in elements(builder, args[1], sig.args[1].count)]
        return make_tuple(context, builder, sig.return_type, kept)

    return vector(types.boolean, vector), codegen


@intrinsic
def sum_squares(typingctx, accumulator, vector):
    """``accumulator`` plus each element squared, first element first, one fused multiply-add each (the same bits everywhere)."""

    def codegen(context, builder, sig, args):
        total = args[0]
        for value in elements(builder, args[1], sig.args[1].count):
            total = builder.fma(value, value, total)
        return total

    return types.float32(types.float32, vector), codegen


def _unary(ptx: Callable[..., Any], cpu: Callable[..., Any]) -> Callable[..., Any]:
    """``operation(x)``: a function of one fp32 value, by what emits it for either target."""

    @intrinsic
    def operation(typingctx, x):
        def codegen(context, builder, sig, args):
            return (ptx if on_gpu(builder) else cpu)(context, builder, args[0])

        return types.float32(types.float32), codegen

    return operation


def _ptx(text: str) -> Callable[..., Any]:
    return lambda context, builder, x: asm(builder, text, F32, "=f,f", [x])


def _llvm(name: str) -> Callable[..., Any]:
    def emit(context, builder, x):
        return builder.call(builder.module.declare_intrinsic(name, [F32]), [x])

    return emit


def _clear_sign(context, builder, x):
    return builder.bitcast(builder.and_(builder.bitcast(x, I32), I32(0x7FFFFFFF)), F32)


def _saturate(context, builder, x):
    positive = builder.fcmp_ordered(">", x, ZERO)  # a NaN is not
    return builder.select(positive, builder.select(builder.fcmp_ordered("<", x, ONE), x, ONE), ZERO)


def _exponent(context, builder, x):
    return builder.bitcast(builder.shl(builder.bitcast(x, I32), I32(23)), F32)


ZERO, ONE = ir.Constant(F32, 0.0), ir.Constant(F32, 1.0)

# Approximations of the special function unit; on the CPU with an H200's bits, see approximate.py.
# rsqrt.approx: at most 2^-22.9 relative error (PTX ISA, rsqrt).
rsqrt = _unary(_ptx("rsqrt.approx.f32 $0, $1;"), approximate.rsqrt)
# ex2.approx: 2 ULP over the full range (PTX ISA, ex2). Without ftz subnormal results are kept.
exp2_approx = _unary(_ptx("ex2.approx.f32 $0, $1;"), approximate.exp2)
exp2_approx_ftz = _unary(_ptx("ex2.approx.ftz.f32 $0, $1;"), approximate.exp2_ftz)
# rcp.approx: 1 ULP (PTX ISA, rcp). ftz, which spares three instructions, takes subnormal arguments for zero.
reciprocal_approx = _unary(_ptx("rcp.approx.ftz.f32 $0, $1;"), approximate.reciprocal_ftz)

reciprocal = _unary(_ptx("rcp.rn.f32 $0, $1;"), lambda context, builder, x: builder.fdiv(ONE, x))
absolute = _unary(_clear_sign, _clear_sign)
# Held between 0 and 1; a NaN becomes 0.
saturated = _unary(_ptx("cvt.sat.f32.f32 $0, $1;"), _saturate)
truncated = _unary(_ptx("cvt.rzi.f32.f32 $0, $1;"), _llvm("llvm.trunc"))
# 2^(k - 127), where k is the last eight bits of the argument's bits.
power_of_two = _unary(_exponent, _exponent)


@intrinsic
def sum_rounded_down(typingctx, a, b, c):
    """``floor(a * b) + c``, for ``a * b >= 0``, ``c`` whole and a sum from 2^23 to 2^24: there it is ``fma.rm.f32``."""

    def codegen(context, builder, sig, args):
        if on_gpu(builder):
            return asm(builder, "fma.rm.f32 $0, $1, $2, $3;", F32, "=f,f,f,f", args)
        a, b, c = (builder.fpext(x, ir.DoubleType()) for x in args)
        floor = builder.module.declare_intrinsic("llvm.floor", [ir.DoubleType()])
        return builder.fptrunc(builder.fadd(builder.call(floor, [builder.fmul(a, b)]), c), F32)

    return types.float32(types.float32, types.float32, types.float32), codegen


@intrinsic
def divide(typingctx, a, b):
    """fp32 division rounded to nearest, ``div.rn.f32``; no check for 0, as Python's operator makes."""

    def codegen(context, builder, sig, args):
        return builder.fdiv(args[0], args[1])

    return types.float32(types.float32, types.float32), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """a * b + c, rounded once: ``fma.rn.f32``."""

    def codegen(context, builder, sig, args):
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen

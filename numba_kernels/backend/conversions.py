"""Storage formats and fp32: words to values and back, and the two operations that round to storage as they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..formats import Format
from .codegen import F16, F32, I16, I32, asm, elements, make_tuple, on_gpu


def _one_nan(builder, value, bits, nan: int):
    """The bits, or ``nan``'s where the value is one: all arithmetic of a GPU makes this one NaN, a CPU's makes several."""
    return builder.select(builder.fcmp_unordered("uno", value, value), I32(nan), bits)


class _Float32:
    """fp32 is fp32."""

    def widen(self, builder, word, bits: int) -> list:
        """The fp32 values in one word of ``bits`` bits, first element first."""
        return [builder.bitcast(word, F32)]

    def narrow(self, builder, values: list):
        """One word that holds the values, each rounded to nearest even."""
        bits = builder.bitcast(values[0], I32)
        return bits if on_gpu(builder) else _one_nan(builder, values[0], bits, 0x7FFFFFFF)


class _BFloat16:
    """bf16 is the upper half of fp32."""

    def widen(self, builder, word, bits):
        if bits == 16:
            return [builder.bitcast(builder.shl(builder.zext(word, I32), I32(16)), F32)]
        low = builder.shl(word, I32(16))
        high = builder.and_(word, I32(0xFFFF0000))
        return [builder.bitcast(low, F32), builder.bitcast(high, F32)]

    def narrow(self, builder, values):
        if on_gpu(builder):
            if len(values) == 1:
                return asm(builder, "cvt.rn.bf16.f32 $0, $1;", I16, "=h,f", values)
            return asm(builder, "cvt.rn.bf16x2.f32 $0, $2, $1;", I32, "=r,f,f", values)
        halves = [self._round(builder, v) for v in values]
        if len(halves) == 1:
            return builder.trunc(halves[0], I16)
        return builder.or_(halves[0], builder.shl(halves[1], I32(16)))

    @staticmethod
    def _round(builder, value):
        """Round to nearest even by adding half a step to the bits."""
        bits = builder.bitcast(value, I32)
        odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
        rounded = builder.lshr(builder.add(builder.add(bits, I32(0x7FFF)), odd), I32(16))
        return _one_nan(builder, value, rounded, 0x7FFF)


class _Float16:
    """fp16 is LLVM's half."""

    def widen(self, builder, word, bits):
        if bits == 16:
            return [builder.fpext(builder.bitcast(word, F16), F32)]
        low = builder.trunc(word, I16)
        high = builder.trunc(builder.lshr(word, I32(16)), I16)
        return [builder.fpext(builder.bitcast(half, F16), F32) for half in (low, high)]

    def narrow(self, builder, values):
        if on_gpu(builder):
            if len(values) == 1:
                return asm(builder, "cvt.rn.f16.f32 $0, $1;", I16, "=h,f", values)
            return asm(builder, "cvt.rn.f16x2.f32 $0, $2, $1;", I32, "=r,f,f", values)
        halves = [_one_nan(builder, v, builder.zext(builder.bitcast(builder.fptrunc(v, F16), I16), I32), 0x7FFF) for v in values]
        if len(halves) == 1:
            return builder.trunc(halves[0], I16)
        return builder.or_(halves[0], builder.shl(halves[1], I32(16)))


_CONVERSIONS: dict[str, Any] = {"fp32": _Float32(), "bf16": _BFloat16(), "fp16": _Float16()}


def widen_word(fmt: Format, builder, word, bits: int) -> list:
    """The fp32 values in one word of ``bits`` bits, first element first."""
    return _CONVERSIONS[fmt.name].widen(builder, word, bits)


def narrow_word(fmt: Format, builder, values: list):
    """One word that holds the fp32 values, each rounded to nearest even."""
    return _CONVERSIONS[fmt.name].narrow(builder, values)


def word_bits(fmt: Format, count: int) -> int:
    """Vectors travel as 32-bit words; a single 16-bit element as one 16-bit word."""
    return 16 if fmt.itemsize == 2 and count == 1 else 32


def words_in(fmt: Format, count: int) -> int:
    """How many words hold ``count`` elements."""
    return max(1, count * fmt.itemsize // 4)


def word_type(fmt: Format, count: int):
    """The type of one word of a vector of ``count`` elements."""
    return types.uint16 if word_bits(fmt, count) == 16 else types.uint32


def words_type(fmt: Format, count: int):
    """The type of a vector of ``count`` elements as it lies in storage."""
    return types.UniTuple(word_type(fmt, count), words_in(fmt, count))


def make_widen(fmt: Format, count: int) -> Callable[..., Any]:
    """``widen(words) -> fp32 vector``, exactly: for bf16 a shift or a mask, for fp16 ``cvt.f32.f16``."""
    bits, words = word_bits(fmt, count), words_in(fmt, count)

    @intrinsic
    def widen(typingctx, vector):
        def codegen(context, builder, sig, args):
            values = [v for w in elements(builder, args[0], words) for v in widen_word(fmt, builder, w, bits)]
            return make_tuple(context, builder, sig.return_type, values)

        return types.UniTuple(types.float32, count)(words_type(fmt, count)), codegen

    return widen


def make_narrow(fmt: Format, count: int) -> Callable[..., Any]:
    """``narrow(fp32 vector) -> words``: each value rounded once to the storage dtype, to nearest even.

    Two values a word by ``cvt.rn.bf16x2.f32`` or ``cvt.rn.f16x2.f32``. A NaN stays a NaN.
    """
    per_word = 1 if count == 1 else 4 // fmt.itemsize

    @intrinsic
    def narrow(typingctx, vector):
        def codegen(context, builder, sig, args):
            values = elements(builder, args[0], count)
            packed = [narrow_word(fmt, builder, values[k : k + per_word]) for k in range(0, count, per_word)]
            return make_tuple(context, builder, sig.return_type, packed)

        return words_type(fmt, count)(types.UniTuple(types.float32, count)), codegen

    return narrow


def _make_rounded(fmt: Format, count: int, operands: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """``operation(words, words) -> words``, rounded once to the storage dtype.

    On the GPU one ``fma.rn.bf16x2`` or ``fma.rn.f16x2`` a word, two elements at a time. The CPU's way by fp32 gives the same
    bits: fp32 has more than twice the digits of a 16-bit format, and two to spare, so that rounding twice is rounding once.
    """
    bits = word_bits(fmt, count)
    per_word = bits // (8 * fmt.itemsize)
    kind = ir.IntType(bits)

    def both(value: int):
        return kind(value | value << 16 if per_word == 2 else value)

    @intrinsic
    def operation(typingctx, left, right):
        def codegen(context, builder, sig, args):
            found = []
            for a, b in zip(*(elements(builder, vector, words_in(fmt, count)) for vector in args), strict=True):
                if on_gpu(builder) and fmt.itemsize == 2:
                    first, second, third = operands(a, b, both)
                    text = f"fma.rn.{fmt.ptx}{'x2' if per_word == 2 else ''} $0, $1, $2, $3;"
                    register = "r" if per_word == 2 else "h"
                    constraints = f"={register},{register},{register},{register}"
                    found.append(asm(builder, text, kind, constraints, [first, second, third]))
                else:
                    pairs = zip(widen_word(fmt, builder, a, bits), widen_word(fmt, builder, b, bits), strict=True)
                    found.append(narrow_word(fmt, builder, [plain(builder, x, y) for x, y in pairs]))
            return make_tuple(context, builder, sig.return_type, found)

        words = words_type(fmt, count)
        return words(words, words), codegen

    return operation


def make_rounded_sum(fmt: Format, count: int) -> Callable[..., Any]:
    """``rounded_sum(words, words) -> words``: elementwise sums in the storage dtype."""
    return _make_rounded(fmt, count, lambda a, b, both: (a, both(fmt.one), b), lambda builder, x, y: builder.fadd(x, y))


def make_rounded_product(fmt: Format, count: int) -> Callable[..., Any]:
    """``rounded_product(words, words) -> words``: elementwise products in the storage dtype. (-0 added changes no product.)"""
    return _make_rounded(fmt, count, lambda a, b, both: (a, b, both(fmt.minus_zero)), lambda builder, x, y: builder.fmul(x, y))


@intrinsic
def float_from_bits(typingctx, bits):
    """The fp32 value whose bits are the low 32 of ``bits`` (a launch passes eps this way: no fp64 reaches the kernel)."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(builder.trunc(args[0], I32), F32)

    return types.float32(types.int64), codegen

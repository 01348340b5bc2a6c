"""Roundings that no contract has, for mutants to put a value through: ``f(value) -> value``, an fp32 number or a vector.

On a GPU and on the emulator alike, since they are integer arithmetic on the bits. The range stays that of fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I32, _F32 = ir.IntType(32), ir.FloatType()
_EXPONENT = 0x7F800000


def _make(lost: int, rule: str) -> Callable[..., Any]:
    """Rounding off the ``lost`` lowest bits of the significand: to "even", "away" from zero where it is half, toward "zero"."""
    whole, half = _I32(-1 << lost), 1 << (lost - 1)

    def of_bits(builder: Any, value: Any) -> Any:
        word = builder.bitcast(value, _I32)
        if rule == "even":
            odd = builder.and_(builder.lshr(word, _I32(lost)), _I32(1))
            raised = builder.add(word, builder.add(odd, _I32(half - 1)))
        else:
            raised = builder.add(word, _I32(half)) if rule == "away" else word
        kept = builder.bitcast(builder.and_(raised, whole), _F32)
        special = builder.icmp_unsigned("==", builder.and_(word, _I32(_EXPONENT)), _I32(_EXPONENT))
        return builder.select(special, value, kept)

    @intrinsic
    def through(typingctx, value):
        if value != types.float32 and not (isinstance(value, types.UniTuple) and value.dtype == types.float32):
            return None

        def codegen(context, builder, sig, args):
            if not isinstance(sig.args[0], types.UniTuple):
                return of_bits(builder, args[0])
            parts = [of_bits(builder, builder.extract_value(args[0], k)) for k in range(sig.args[0].count)]
            return context.make_tuple(builder, sig.return_type, parts)

        return value(value), codegen

    return through


through_fp16 = _make(13, "even")  # 11 bits of significand, as fp16 has
through_bf16 = _make(16, "even")  # 8, as bf16 has
toward_zero = _make(16, "zero")
half_away = _make(16, "away")

ALL = {"through_fp16": through_fp16, "through_bf16": through_bf16, "toward_zero": toward_zero, "half_away": half_away}

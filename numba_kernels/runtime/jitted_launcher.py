"""The launch of launcher.py, compiled by Numba: for an installation without a C compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .packing import CONFIG, CONFIG_WORDS, CONSTANTS, ENTRY, FUNCTION, MOST_CONSTANTS, STREAM_WORD

I32, I64 = ir.IntType(32), ir.IntType(64)
BYTES = ir.IntType(8).as_pointer()


def _make_enter(addresses: int) -> Any:
    """``enter_driver(packed, stream, addresses) -> status``, the addresses as a tuple."""
    parameters = addresses + MOST_CONSTANTS

    @intrinsic
    def enter_driver(typingctx, packed, stream, given):
        def codegen(context, builder, sig, args):
            words = builder.inttoptr(args[0], I64.as_pointer())

            def word(k):
                return builder.load(builder.gep(words, [I32(k)]))

            config = builder.alloca(ir.ArrayType(I64, CONFIG_WORDS))
            for k in range(CONFIG_WORDS):
                value = args[1] if k == STREAM_WORD else word(CONFIG + k)
                builder.store(value, builder.gep(config, [I32(0), I32(k)]))
            values = builder.alloca(ir.ArrayType(I64, parameters))
            pointers = builder.alloca(ir.ArrayType(BYTES, parameters))
            for k in range(parameters):
                value = builder.extract_value(args[2], k) if k < addresses else word(CONSTANTS + k - addresses)
                place = builder.gep(values, [I32(0), I32(k)])
                builder.store(value, place)
                builder.store(builder.bitcast(place, BYTES), builder.gep(pointers, [I32(0), I32(k)]))
            entry = builder.inttoptr(word(ENTRY), ir.FunctionType(I32, [BYTES] * 4).as_pointer())
            function = builder.inttoptr(word(FUNCTION), BYTES)
            nothing = ir.Constant(BYTES, None)
            return builder.call(entry, [builder.bitcast(config, BYTES), function, builder.bitcast(pointers, BYTES), nothing])

        return types.int32(types.int64, types.int64, types.UniTuple(types.int64, addresses)), codegen

    return enter_driver


_enter_norm, _enter_gated = _make_enter(4), _make_enter(2)


@njit("int32(int64, int64, int64, int64, int64, int64)", cache=True)
def _launch_norm(packed, stream, x, residual, weight, out):
    return _enter_norm(packed, stream, (x, residual, weight, out))


@njit("int32(int64, int64, int64, int64)", cache=True)
def _launch_gated(packed, stream, x, out):
    return _enter_gated(packed, stream, (x, out))


LAUNCH: dict[int, Callable[..., int]] = {4: _launch_norm, 2: _launch_gated}  # by the number of addresses

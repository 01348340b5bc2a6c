"""Float64 and its bit pattern, for kernels: the two views that Numba has no name for on both targets."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def bits_of(typingctx, value):
    """The bit pattern of a float64, int64."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def in_fp32(typingctx, value):
    """A float64 rounded to fp32, to nearest even."""

    def codegen(context, builder, sig, args):
        return builder.fptrunc(args[0], ir.FloatType())

    return types.float32(types.float64), codegen

"""The tile counter of a persistent kernel: its blocks take rows one by one, in the order in which they become free."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .codegen import I32, on_gpu

TILE_COUNTERS = 1 << 14  # of each compiled kernel: one for each stream and each captured launch (see counters.py)


@intrinsic
def take_tile(typingctx, counter, takes):
    """How many tiles were taken from counter number ``counter`` before; the last of ``takes`` in all sets it back to 0.

    One ``atom.global.add.u32``. The counters are memory of the compiled kernel itself, 0 when it is loaded.
    """

    def codegen(context, builder, sig, args):
        kind = ir.ArrayType(I32, TILE_COUNTERS)
        counters = ir.GlobalVariable(builder.module, kind, "counters", addrspace=1 if on_gpu(builder) else 0)
        counters.linkage, counters.initializer = "internal", ir.Constant(kind, None)
        at = builder.gep(counters, [I32(0), args[0]])
        before = builder.atomic_rmw("add", at, I32(1), "monotonic")
        with builder.if_then(builder.icmp_signed("==", before, builder.sub(args[1], I32(1)))):
            builder.store(I32(0), at)
        return before

    return types.int32(types.int32, types.int32), codegen

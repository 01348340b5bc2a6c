"""The tile counter of a persistent kernel: its blocks take rows one by one, in the order in which they become free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .codegen import I32, on_gpu


def make_take_tile(counters: int) -> Callable[..., Any]:
    """``take_tile(counter, takes) -> before``, of a kernel with so many counters.

    How many tiles were taken from counter number ``counter`` before; the last of ``takes`` in all sets it back to 0. One
    ``atom.global.add.u32``. The counters are memory of the compiled kernel itself, 0 when it is loaded.
    """

    @intrinsic
    def take_tile(typingctx, counter, takes):
        def codegen(context, builder, sig, args):
            kind = ir.ArrayType(I32, counters)
            memory = ir.GlobalVariable(builder.module, kind, "counters", addrspace=1 if on_gpu(builder) else 0)
            memory.linkage, memory.initializer = "internal", ir.Constant(kind, None)
            at = builder.gep(memory, [I32(0), args[0]])
            before = builder.atomic_rmw("add", at, I32(1), "monotonic")
            with builder.if_then(builder.icmp_signed("==", before, builder.sub(args[1], I32(1)))):
                builder.store(I32(0), at)
            return before

        return types.int32(types.int32, types.int32), codegen

    return take_tile

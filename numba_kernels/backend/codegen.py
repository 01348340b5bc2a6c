"""Pieces of LLVM IR that the modules beside this one emit their code with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()


def on_gpu(builder: Any) -> bool:
    """Whether PTX is being made; else it is the emulator's code for the CPU."""
    return "nvptx" in builder.module.triple


def asm(builder, text: str, result: ir.Type, constraints: str, args=(), *, side_effect: bool = False):
    """Inline PTX. Without ``side_effect`` it may be moved and merged like any pure instruction."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=side_effect), list(args))


def elements(builder, vector, count: int) -> list:
    """The ``count`` values of a vector."""
    return [builder.extract_value(vector, k) for k in range(count)]


def make_tuple(context, builder, kind, values):
    """A vector of Numba's type ``kind``: the counterpart of :func:`elements`."""
    return context.make_tuple(builder, kind, values)


def element_pointer(context, builder, array_type, array, index, count: int = 1):
    """A pointer to ``array[index]`` of a shared array; on the CPU ``count`` elements from there are checked to lie inside."""
    made = context.make_array(array_type)(context, builder, array)
    if not on_gpu(builder):
        last = builder.sub(made.nitems, I64(count))
        outside = builder.or_(builder.icmp_signed("<", index, I64(0)), builder.icmp_signed(">", index, last))
        refuse_if(context, builder, outside, "access outside shared memory")
    return builder.gep(made.data, [index], inbounds=True)


def refuse_if(context, builder, condition, what: str) -> None:
    """On the CPU, where the condition holds: IndexError, which the emulator tells as an access out of bounds."""
    with builder.if_then(condition, likely=False):
        context.call_conv.return_user_exc(builder, IndexError, (what,))


def make_statement(text: str) -> Callable[..., Any]:
    """``operation()``: one PTX instruction without operands that memory accesses stay on their side of; nothing on the CPU."""

    @intrinsic
    def operation(typingctx):
        def codegen(context, builder, sig, args):
            if on_gpu(builder):
                asm(builder, text, ir.VoidType(), "~{memory}", side_effect=True)
            return context.get_dummy_value()

        return types.void(), codegen

    return operation

"""Resumable threads: a Numba generator is a struct {resume index, arguments, live variables} and a function on it."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types

from .words import I8, I32, I64, intrinsic


@intrinsic
def thread_image(typingctx, generator, address):
    """Copy a generator's struct to ``address``; (its bytes, the offset of its first argument, the address of its ``next``)."""
    if not isinstance(generator, types.Generator):
        return None

    def codegen(context, builder, sig, args):
        struct = context.get_data_type(generator)
        builder.store(builder.load(args[0]), builder.inttoptr(args[1], struct.as_pointer()))
        context.get_generator_impl(generator)  # links the library that defines next
        resume = context.declare_function(builder.module, context.get_generator_desc(generator))
        null = ir.Constant(struct.as_pointer(), None)
        first = builder.gep(null, [I32(0), I32(1), I32(0)])
        words = [I64(context.get_abi_sizeof(struct)), builder.ptrtoint(first, I64), builder.ptrtoint(resume, I64)]
        return context.make_tuple(builder, sig.return_type, words)

    return types.UniTuple(types.int64, 3)(generator, types.int64), codegen


@intrinsic
def resume_thread(typingctx, resume, address):
    """Run the thread at ``address`` to its next wait: the site where it waits, 0 at its end. Raises what the thread raises."""

    def codegen(context, builder, sig, args):
        conv = context.call_conv
        kind = conv.get_function_type(types.int64, (types.voidptr,))
        callee = builder.inttoptr(args[0], kind.as_pointer())
        thread = builder.inttoptr(args[1], I8.as_pointer())
        status, site = conv.call_function(builder, callee, types.int64, (types.voidptr,), [thread])
        failed = builder.and_(status.is_error, builder.not_(status.is_stop_iteration))
        with cgutils.if_unlikely(builder, failed):
            conv.return_status_propagate(builder, status)
        return builder.select(status.is_stop_iteration, I64(0), site)

    return types.int64(types.int64, types.int64), codegen

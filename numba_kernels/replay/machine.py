"""The instructions that a rewritten kernel is made of: raw words, typed slots, arrays at an address, resumable threads.

Numba intrinsics only. A launch's state lies in one array of int64, the *environment*, whose address each thread carries;
the words are numbered by :class:`Env`.
"""

from __future__ import annotations

import enum
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


class Env(enum.IntEnum):
    """Numbers of the environment's words. Addresses are bytes in this process."""

    BLOCK_X = 0
    BLOCK_Y = 1
    BLOCK_Z = 2
    GRID_X = 3
    GRID_Y = 4
    GRID_Z = 5
    DIM_X = 6
    DIM_Y = 7
    DIM_Z = 8
    THREAD = 9  # linear number of the thread that runs
    LOCATION = 10  # number of the source location that runs, see locations.py
    ARENA = 11  # address of the block's shared memory
    LOCALS = 12  # address of the threads' local memory
    LOCAL_BYTES = 13  # bytes of local memory a thread
    MASKS = 14  # addresses of one int64 a thread: what the thread asks of the collective where it waits
    VALUES = 15
    SOURCES = 16
    ANSWERS = 17
    ENDED = 18
    ORDER = 19  # address of the order in which threads run (plain kernels)
    FAULT = 20  # what went wrong (checks.Fault), and four words about it
    FAULT_A = 21
    FAULT_B = 22
    FAULT_C = 23
    FAULT_D = 24
    ARENA_BYTES = 25
    EPOCH = 26  # barrier interval that runs, counted over the launch (full check)
    BLOCK_EPOCH = 27  # the first interval of this block
    SHADOW = 28  # address of the shared arena's shadow, see shadow.py
    GRAIN = 29  # bytes a shadow cell stands for
    SEEN = 30  # address of the warps' vector clocks
    REGIONS = 31  # address of the table of global arrays
    REGION_COUNT = 32
    DYNAMIC = 33  # where dynamic shared memory starts in the arena
    SIZE = 40


I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _word(builder: Any, base: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(base, I64.as_pointer()), [index])


@intrinsic
def peek(typingctx, base, index):
    """The int64 word ``index`` of the array at address ``base``."""

    def codegen(context, builder, sig, args):
        return builder.load(_word(builder, *args))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def poke(typingctx, base, index, value):
    """Store int64 ``value`` in word ``index`` of the array at address ``base``."""

    def codegen(context, builder, sig, args):
        builder.store(args[2], _word(builder, args[0], args[1]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def mark(typingctx, env, location):
    """Record the source location that runs; always true, so that it can stand before a loop's condition."""

    def codegen(context, builder, sig, args):
        builder.store(args[1], _word(builder, args[0], I64(int(Env.LOCATION))))
        return ir.Constant(ir.IntType(1), 1)

    return types.boolean(types.int64, types.int64), codegen


@intrinsic
def as_int32(typingctx, value):
    """``value`` in the type that CUDA's indices have."""

    def codegen(context, builder, sig, args):
        return builder.trunc(args[0], I32)

    return types.int32(types.int64), codegen


@intrinsic
def to_bits(typingctx, value):
    """The bits of an integer or float of at most 64 bits, in an int64."""
    kind = types.unliteral(value)
    if not isinstance(kind, types.Integer | types.Float | types.Boolean):
        return None

    def codegen(context, builder, sig, args):
        value = args[0]
        if isinstance(kind, types.Float):
            value = builder.bitcast(value, ir.IntType(kind.bitwidth))
        return value if value.type == I64 else builder.zext(value, I64)

    return types.int64(kind), codegen


@intrinsic
def from_bits(typingctx, bits, like):
    """The value of ``like``'s type whose bits are ``bits``: the inverse of :func:`to_bits`."""
    kind = types.unliteral(like)

    def codegen(context, builder, sig, args):
        native = context.get_value_type(kind)
        if isinstance(kind, types.Float):
            bits = args[0] if kind.bitwidth == 64 else builder.trunc(args[0], ir.IntType(kind.bitwidth))
            return builder.bitcast(bits, native)
        return args[0] if native == I64 else builder.trunc(args[0], native)

    return kind(types.int64, kind), codegen


@intrinsic
def array_at(typingctx, address, shape, dtype):
    """A C-contiguous array of ``dtype`` at ``address``; it owns nothing. ``shape`` is a tuple of int64."""
    element = dtype.dtype if isinstance(dtype, types.DType | types.NumberClass) else None
    if element is None or not isinstance(shape, types.UniTuple):
        return None
    kind = types.Array(element, shape.count, "C")

    def codegen(context, builder, sig, args):
        itemsize = context.get_abi_sizeof(context.get_data_type(element))
        extents = [builder.extract_value(args[1], k) for k in range(shape.count)]
        strides, step = [], I64(itemsize)
        for extent in reversed(extents):
            strides.insert(0, step)
            step = builder.mul(step, extent)
        array = context.make_array(kind)(context, builder)
        data = builder.inttoptr(args[0], context.get_data_type(element).as_pointer())
        populate_array(array, data, extents, strides, itemsize, None)
        return array._getvalue()

    return kind(types.int64, types.UniTuple(types.int64, shape.count), dtype), codegen


@intrinsic
def borrow(typingctx, value):
    """``value`` itself; an array loses its reference count (the launch keeps the owner alive), so threads copy it freely."""
    kind = types.unliteral(value)

    def codegen(context, builder, sig, args):
        if not isinstance(kind, types.Array):
            context.nrt.incref(builder, kind, args[0])
            return args[0]
        array = context.make_array(kind)(context, builder, args[0])
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()

    return kind(kind), codegen


@intrinsic
def base_address(typingctx, array):
    """The address of an array's first element."""

    def codegen(context, builder, sig, args):
        return builder.ptrtoint(context.make_array(array)(context, builder, args[0]).data, I64)

    return types.int64(array), codegen


@intrinsic
def fill_bytes(typingctx, address, count):
    """Poison: ``count`` bytes of 0xFF, which is a NaN in every float type and -1 in every signed integer type."""

    def codegen(context, builder, sig, args):
        cgutils.memset(builder, builder.inttoptr(args[0], I8.as_pointer()), args[1], 0xFF)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def copy_bytes(typingctx, target, source, count):
    """``count`` bytes from ``source`` to ``target``, which do not overlap."""

    def codegen(context, builder, sig, args):
        cgutils.raw_memcpy(
            builder,
            builder.inttoptr(args[0], I8.as_pointer()),
            builder.inttoptr(args[1], I8.as_pointer()),
            args[2],
            1,
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


# --- resumable threads: a Numba generator is a struct {resume index, arguments, live variables} and a function on it --------


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
    """Run the thread at ``address`` to its next wait: the number of the site where it waits, 0 at its end. Raises what it raises."""

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

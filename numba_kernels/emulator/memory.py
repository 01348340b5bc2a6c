"""Arrays at an address, and bytes: shared, local and borrowed memory."""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.np.arrayobj import populate_array

from .environment import Env
from .words import I8, I64, env_word, intrinsic


def _array(context: Any, builder: Any, kind: Any, address: Any, extents: list) -> Any:
    """A C-contiguous array at an address; it owns nothing."""
    element = context.get_data_type(kind.dtype)
    itemsize = context.get_abi_sizeof(element)
    strides: list = []
    step = I64(itemsize)
    for extent in reversed(extents):
        strides.insert(0, step)
        step = builder.mul(step, extent)
    array = context.make_array(kind)(context, builder)
    populate_array(array, builder.inttoptr(address, element.as_pointer()), extents, strides, itemsize, None)
    return array._getvalue()


def _array_type(dtype: Any, shape: Any) -> Any:
    """The array type for a dtype and a shape of literal integers; (type, extents) or None."""
    if not isinstance(dtype, types.DType | types.NumberClass):
        return None
    extents = tuple(shape) if isinstance(shape, types.BaseTuple) else (shape,)  # type: ignore[arg-type]
    if not all(isinstance(e, types.IntegerLiteral) for e in extents):
        return None
    return types.Array(dtype.dtype, len(extents), "C"), [I64(e.literal_value) for e in extents]


@intrinsic(prefer_literal=True)
def shared_array(typingctx, env, offset, shape, dtype):
    """A static shared array: ``offset`` bytes into the block's shared memory; ``shape`` one literal or a tuple of them."""
    made = _array_type(dtype, shape)
    if made is None:
        return None
    kind, extents = made

    def codegen(context, builder, sig, args):
        address = builder.add(env_word(builder, args[0], Env.ARENA), args[1])
        return _array(context, builder, kind, address, extents)

    return kind(types.int64, types.int64, shape, dtype), codegen


@intrinsic(prefer_literal=True)
def local_array(typingctx, env, thread, offset, shape, dtype):
    """A local array: ``offset`` bytes into the thread's local memory."""
    made = _array_type(dtype, shape)
    if made is None:
        return None
    kind, extents = made

    def codegen(context, builder, sig, args):
        own = builder.mul(args[1], env_word(builder, args[0], Env.LOCAL_BYTES))
        address = builder.add(builder.add(env_word(builder, args[0], Env.LOCALS), own), args[2])
        return _array(context, builder, kind, address, extents)

    return kind(types.int64, types.int64, types.int64, shape, dtype), codegen


@intrinsic
def dynamic_array(typingctx, env, dtype):
    """The block's dynamic shared memory, all of it, as an array of ``dtype``."""
    if not isinstance(dtype, types.DType | types.NumberClass):
        return None
    kind = types.Array(dtype.dtype, 1, "C")

    def codegen(context, builder, sig, args):
        start = env_word(builder, args[0], Env.DYNAMIC)
        size = builder.sub(env_word(builder, args[0], Env.ARENA_BYTES), start)
        itemsize = I64(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        address = builder.add(env_word(builder, args[0], Env.ARENA), start)
        return _array(context, builder, kind, address, [builder.udiv(size, itemsize)])

    return kind(types.int64, dtype), codegen


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

"""The instructions that a rewritten kernel is made of: raw words, typed slots, arrays at an address, resumable threads.

Numba intrinsics only. A launch's state lies in one array of int64, the *environment*, whose address each thread carries;
the words are numbered by :class:`Env`.
"""

from __future__ import annotations

import enum
from typing import Any

import numba
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.np.arrayobj import populate_array

# Numba's annotations describe the function that is decorated, not what compiled code calls.
intrinsic: Any = extending.intrinsic
overload: Any = extending.overload
njit: Any = numba.njit


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
    FAULT = 20  # what went wrong (sites.Fault), and four words about it
    FAULT_A = 21
    FAULT_B = 22
    FAULT_C = 23
    FAULT_D = 24
    ARENA_BYTES = 25
    EPOCH = 26  # barrier interval that runs, counted over the launch (full check)
    BLOCK_EPOCH = 27  # the first interval of this block
    SHADOW = 28  # address of the shared arena's shadow, see races.py
    GRAIN = 29  # bytes a shadow cell stands for
    SEEN = 30  # address of the warps' vector clocks
    REGIONS = 31  # address of the table of global arrays
    REGION_COUNT = 32
    DYNAMIC = 33  # where dynamic shared memory starts in the arena
    LAYOUT = 34  # digest of the files that compiled drivers depend on
    CLUSTER = 35  # blocks that run together; the first one's number and the address of its shared memory
    CLUSTER_X = 36
    CLUSTER_ARENA = 37
    PASSED = 38  # conditions that have come true
    SIZE = 40


BLOCK_SPAN = 1 << 18  # bytes between the shared memories of a cluster's blocks
MOST_BLOCKS = 16  # of a cluster; the first one's shared memory lies at a multiple of BLOCK_SPAN * MOST_BLOCKS

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
def passed(typingctx, env):
    """Count a condition that has come true."""

    def codegen(context, builder, sig, args):
        word = _word(builder, args[0], I64(int(Env.PASSED)))
        builder.store(builder.add(builder.load(word), I64(1)), word)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def word32(typingctx, env, word):
    """A word of the environment in the type that CUDA's indices have."""

    def codegen(context, builder, sig, args):
        return builder.trunc(builder.load(_word(builder, *args)), I32)

    return types.int32(types.int64, types.int64), codegen


def _thread_index(axis: int) -> Any:
    """``threadIdx`` of one axis from the thread's number in its block."""

    @intrinsic
    def thread_index(typingctx, env, thread):
        def codegen(context, builder, sig, args):
            value = args[1]
            for word in (Env.DIM_X, Env.DIM_Y)[:axis]:
                value = builder.udiv(value, _env_word(builder, args[0], word))
            if axis < 2:
                value = builder.urem(value, _env_word(builder, args[0], Env.DIM_X + axis))
            return builder.trunc(value, I32)

        return types.int32(types.int64, types.int64), codegen

    return thread_index


thread_x, thread_y, thread_z = (_thread_index(axis) for axis in range(3))


@intrinsic
def lane_of(typingctx, thread):
    """The lane of a thread in its warp."""

    def codegen(context, builder, sig, args):
        return builder.trunc(builder.and_(args[0], I64(31)), I32)

    return types.int32(types.int64), codegen


# --- collectives: a lane offers what it brings before it waits, and takes the answer after ---------------------------


def _env_word(builder: Any, env: Any, word: int) -> Any:
    return builder.load(_word(builder, env, I64(int(word))))


def _put(builder: Any, env: Any, thread: Any, word: Env, value: Any) -> None:
    """Store ``value`` in the thread's element of the array that a word of the environment points to."""
    builder.store(value, _word(builder, _env_word(builder, env, word), thread))


def _put_mask(context: Any, builder: Any, env: Any, thread: Any, mask: Any, kind: Any) -> None:
    wide = context.cast(builder, mask, kind, types.int64)
    _put(builder, env, thread, Env.MASKS, builder.and_(wide, I64(0xFFFFFFFF)))


def _plain(kind: Any) -> Any:
    """The type of an integer, float or boolean of at most 64 bits; None for any other."""
    kind = types.unliteral(kind)
    return kind if isinstance(kind, types.Integer | types.Float | types.Boolean) else None


def _shuffle_source(builder: Any, name: str, lane: Any, argument: Any) -> Any:
    if name == "shfl_sync":
        return builder.and_(argument, I64(31))
    if name == "shfl_xor_sync":
        return builder.and_(builder.xor(lane, argument), I64(31))
    source = builder.add(lane, argument) if name == "shfl_down_sync" else builder.sub(lane, argument)
    return builder.select(builder.icmp_unsigned("<", source, I64(32)), source, lane)  # beyond the warp: its own value


def _offer_shuffle(name: str) -> Any:
    @intrinsic
    def offer(typingctx, env, thread, mask, value, argument):
        kinds = [_plain(k) for k in (mask, value, argument)]
        if None in kinds:
            return None

        def codegen(context, builder, sig, args):
            env, thread, mask, value, argument = args
            _put_mask(context, builder, env, thread, mask, kinds[0])
            if isinstance(kinds[1], types.Float):
                value = builder.bitcast(value, ir.IntType(kinds[1].bitwidth))
            _put(builder, env, thread, Env.VALUES, value if value.type == I64 else builder.zext(value, I64))
            lane = builder.and_(thread, I64(31))
            wide = context.cast(builder, argument, kinds[2], types.int64)
            _put(builder, env, thread, Env.SOURCES, _shuffle_source(builder, name, lane, wide))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, *kinds), codegen

    return offer


OFFER_SHUFFLE = {name: _offer_shuffle(name) for name in ("shfl_sync", "shfl_xor_sync", "shfl_down_sync", "shfl_up_sync")}


@intrinsic
def offer_vote(typingctx, env, thread, mask, predicate):
    """A lane's mask and whether its predicate holds."""
    kinds = [_plain(k) for k in (mask, predicate)]
    if None in kinds:
        return None

    def codegen(context, builder, sig, args):
        _put_mask(context, builder, args[0], args[1], args[2], kinds[0])
        holds = context.cast(builder, args[3], kinds[1], types.boolean)
        _put(builder, args[0], args[1], Env.VALUES, builder.zext(holds, I64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, *kinds), codegen


@intrinsic
def offer_mask(typingctx, env, thread, mask):
    """A lane's mask, for ``syncwarp``."""
    kind = _plain(mask)

    def codegen(context, builder, sig, args):
        _put_mask(context, builder, args[0], args[1], args[2], kind)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, kind), codegen


@intrinsic
def answer_like(typingctx, env, thread, like):
    """The answer's low bits in the type of ``like``."""
    kind = _plain(like)

    def codegen(context, builder, sig, args):
        bits = builder.load(_word(builder, _env_word(builder, args[0], Env.ANSWERS), args[1]))
        native = context.get_value_type(kind)
        if not isinstance(kind, types.Float):
            return bits if native == I64 else builder.trunc(bits, native)
        return builder.bitcast(bits if kind.bitwidth == 64 else builder.trunc(bits, ir.IntType(kind.bitwidth)), native)

    return kind(types.int64, types.int64, kind), codegen


def _answer(kind: Any) -> Any:
    @intrinsic
    def answer(typingctx, env, thread):
        def codegen(context, builder, sig, args):
            bits = builder.load(_word(builder, _env_word(builder, args[0], Env.ANSWERS), args[1]))
            return builder.trunc(bits, I32) if kind is types.int32 else builder.icmp_unsigned("!=", bits, I64(0))

        return kind(types.int64, types.int64), codegen

    return answer


answer_count, answer_flag = _answer(types.int32), _answer(types.boolean)


@intrinsic
def finish(typingctx, env, thread):
    """The thread ran off the kernel's end (and did not return before it)."""

    def codegen(context, builder, sig, args):
        _put(builder, args[0], args[1], Env.ENDED, I64(2))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


# --- memory ----------------------------------------------------------------------------------------------------------


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
        address = builder.add(_env_word(builder, args[0], Env.ARENA), args[1])
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
        own = builder.mul(args[1], _env_word(builder, args[0], Env.LOCAL_BYTES))
        address = builder.add(builder.add(_env_word(builder, args[0], Env.LOCALS), own), args[2])
        return _array(context, builder, kind, address, extents)

    return kind(types.int64, types.int64, types.int64, shape, dtype), codegen


@intrinsic
def dynamic_array(typingctx, env, dtype):
    """The block's dynamic shared memory, all of it, as an array of ``dtype``."""
    if not isinstance(dtype, types.DType | types.NumberClass):
        return None
    kind = types.Array(dtype.dtype, 1, "C")

    def codegen(context, builder, sig, args):
        start = _env_word(builder, args[0], Env.DYNAMIC)
        size = builder.sub(_env_word(builder, args[0], Env.ARENA_BYTES), start)
        itemsize = I64(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        address = builder.add(_env_word(builder, args[0], Env.ARENA), start)
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


# --- resumable threads: a Numba generator is a struct {resume index, arguments, live variables} and a function on it -


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

"""Access to memory: vectors of a buffer, of shared memory and of a thread's own array, and the prefetch of a row into L2.

A *buffer* is a 1-D array on the CPU (its bounds are checked) and a bare 64-bit address on the GPU. Positions count elements; a
load or store takes one in two parts, ``start + jump``: 64 bits that its neighbours share, and 32 bits of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..formats import Format
from .codegen import I8, I16, I32, I64, asm, element_pointer, elements, make_tuple, on_gpu, refuse_if
from .conversions import word_bits, words_in, words_type


def place_of(context, builder, buffer_type, buffer, start, jump, itemsize: int, count: int):
    """A byte pointer to ``buffer[start + jump]``; on the CPU ``count`` elements from there are checked to lie inside.

    A pointer, not a sum of integers: the compiler would add the two positions before it scales them, for each jump anew.
    """
    if isinstance(buffer_type, types.Array):
        array = context.make_array(buffer_type)(context, builder, buffer)
        position = builder.add(start, builder.sext(jump, I64))
        end = builder.add(position, I64(count))
        outside = builder.or_(builder.icmp_signed("<", position, I64(0)), builder.icmp_signed(">", end, array.nitems))
        refuse_if(context, builder, outside, "access outside the buffer")
        buffer = builder.ptrtoint(array.data, I64)
    first = builder.inttoptr(builder.add(buffer, builder.mul(start, I64(itemsize))), _pointer_type(builder, I8))
    return builder.gep(first, [builder.mul(builder.sext(jump, I64), I64(itemsize))])


def _pointer_type(builder, kind: ir.Type):
    return ir.PointerType(kind, addrspace=1 if on_gpu(builder) else 0)


def _pointer(builder, place, offset: int, kind: ir.Type):
    """A pointer to a ``kind`` that lies ``offset`` bytes past ``place``."""
    return builder.bitcast(builder.gep(place, [I64(offset)]) if offset else place, _pointer_type(builder, kind))


def is_buffer(kind) -> bool:
    """Whether a value of Numba's type ``kind`` can be a buffer."""
    return isinstance(kind, types.Array) or kind == types.uint64


def make_load(fmt: Format, count: int, access: int) -> Callable[..., Any]:
    """``load(buffer, start, jump) -> words``: ``count`` elements by accesses of ``access`` bytes (2, 4, 8 or 16).

    As many ``ld.global`` as that takes, 16 bytes being ``ld.global.v4.u32``. Without a hint: on an H200 .cs, L1::no_allocate and
    L1::evict_first never won by more than the noise.
    """
    bits, words = word_bits(fmt, count), words_in(fmt, count)

    @intrinsic
    def load(typingctx, buffer, start, jump):
        if not is_buffer(buffer):
            return None

        def codegen(context, builder, sig, args):
            at = place_of(context, builder, sig.args[0], args[0], args[1], args[2], fmt.itemsize, count)
            return make_tuple(context, builder, sig.return_type, _load_words(builder, at, words, bits, access))

        return words_type(fmt, count)(buffer, types.int64, types.int32), codegen

    return load


def make_load_if(fmt: Format, count: int, access: int) -> Callable[..., Any]:
    """``load_if(buffer, start, jump, condition) -> words``: as :func:`make_load`; no access, and zeros, where it doesn't hold.

    Predicated instructions, not a branch: loads ahead of it and after it are in flight together.
    """
    bits, words = word_bits(fmt, count), words_in(fmt, count)

    @intrinsic
    def load_if(typingctx, buffer, start, jump, condition):
        if not is_buffer(buffer):
            return None

        def codegen(context, builder, sig, args):
            def place():
                return place_of(context, builder, sig.args[0], args[0], args[1], args[2], fmt.itemsize, count)

            if on_gpu(builder):
                values = _load_predicated(builder, args[3], place(), words, bits, access)
            else:
                outside = builder.block
                with builder.if_then(args[3]):
                    loaded = _load_words(builder, place(), words, bits, access)
                    inside = builder.block
                values = [builder.phi(value.type) for value in loaded]
                for either, value in zip(values, loaded, strict=True):
                    either.add_incoming(ir.Constant(value.type, 0), outside)
                    either.add_incoming(value, inside)
            return make_tuple(context, builder, sig.return_type, values)

        return words_type(fmt, count)(buffer, types.int64, types.int32, types.boolean), codegen

    return load_if


def _load_words(builder, place, words: int, bits: int, access: int) -> list:
    """So many words of so many bits from a place."""
    if access * 8 < bits:
        return _load_halves(builder, place, words)
    if access * 8 == bits:
        return [load_word(builder, place, k * access, ir.IntType(bits), access) for k in range(words)]
    return _load_vectors(builder, place, words, access)


def _load_predicated(builder, condition, place, words: int, bits: int, access: int) -> list:
    """The same where the condition holds, zeros where not."""
    width = min(8 * access, bits)  # of what a register is loaded with; it has 32 bits itself
    lanes, kind = 8 * access // width, ir.IntType(width)  # registers of an access
    registers = [f"${k}" for k in range(lanes)]
    zeros = "".join(f"mov.b32 {register}, 0; " for register in registers)
    into = f"v{lanes}.u{width} {{{', '.join(registers)}}}" if lanes > 1 else f"u{width} $0"
    constraints = ",".join(["=&r"] * lanes + ["l", "r"])
    tests = f"{{ .reg .pred holds; setp.ne.u32 holds, ${lanes + 1}, 0; "
    asked = builder.zext(condition, I32)
    found = []
    for k in range(0, words * bits // width, lanes):
        address = builder.ptrtoint(_pointer(builder, place, k * width // 8, I8), I64)
        text = f"{tests}{zeros}@holds ld.global.{into}, [${lanes}]; }}"
        got = asm(builder, text, ir.LiteralStructType([I32] * lanes) if lanes > 1 else I32, constraints, [address, asked])
        got.attributes.add("readonly")
        found += [builder.extract_value(got, lane) for lane in range(lanes)] if lanes > 1 else [got]
    found = [builder.trunc(value, kind) for value in found] if width < 32 else found
    return found if width == bits else _pairs_joined(builder, found)


def _pairs_joined(builder, halves: list) -> list:
    """Words of 32 bits by their halves, the lower one first."""
    low, high = ([builder.zext(half, I32) for half in halves[first::2]] for first in (0, 1))
    return [builder.or_(a, builder.shl(b, I32(16))) for a, b in zip(low, high, strict=True)]


def load_word(builder, place, offset: int, kind, align: int):
    """One integer ``kind``, ``offset`` bytes past ``place``."""
    value = builder.load(_pointer(builder, place, offset, kind))
    value.align = align if on_gpu(builder) else 1
    return value


def _load_halves(builder, place, words: int) -> list:
    """32-bit words of storage that is only 2-byte aligned."""
    halves = [load_word(builder, place, 2 * k, I16, 2) for k in range(2 * words)]
    return _pairs_joined(builder, halves)


def _load_vectors(builder, place, words: int, access: int) -> list:
    lanes = access // 4
    values = []
    for k in range(0, words, lanes):
        got = builder.load(_pointer(builder, place, 4 * k, ir.VectorType(I32, lanes)))
        got.align = access if on_gpu(builder) else 1  # a CPU takes any address
        values += [builder.extract_element(got, I32(i)) for i in range(lanes)]
    return values


def make_store(fmt: Format, count: int, access: int) -> Callable[..., Any]:
    """``store(buffer, start, jump, words)``: the counterpart of :func:`make_load`, by ``st.global``."""
    bits, words = word_bits(fmt, count), words_in(fmt, count)

    @intrinsic
    def store(typingctx, buffer, start, jump, vector):
        if not is_buffer(buffer):
            return None

        def codegen(context, builder, sig, args):
            at = place_of(context, builder, sig.args[0], args[0], args[1], args[2], fmt.itemsize, count)
            values = elements(builder, args[3], words)
            if access * 8 < bits:
                for k, word in enumerate(values):
                    store_word(builder, at, 4 * k, builder.trunc(word, I16), 2)
                    store_word(builder, at, 4 * k + 2, builder.trunc(builder.lshr(word, I32(16)), I16), 2)
            elif access * 8 == bits:
                for k, word in enumerate(values):
                    store_word(builder, at, k * access, word, access)
            else:
                _store_vectors(builder, at, values, access)
            return context.get_dummy_value()

        return types.void(buffer, types.int64, types.int32, words_type(fmt, count)), codegen

    return store


def store_word(builder, place, offset: int, value, align: int) -> None:
    """The counterpart of :func:`load_word`."""
    stored = builder.store(value, _pointer(builder, place, offset, value.type))
    stored.align = align if on_gpu(builder) else 1


def _store_vectors(builder, place, values: list, access: int) -> None:
    lanes = access // 4
    for k in range(0, len(values), lanes):
        vector = ir.Constant(ir.VectorType(I32, lanes), ir.Undefined)
        for i, word in enumerate(values[k : k + lanes]):
            vector = builder.insert_element(vector, word, I32(i))
        stored = builder.store(vector, _pointer(builder, place, 4 * k, vector.type))
        stored.align = access if on_gpu(builder) else 1


@intrinsic
def prefetch_l2(typingctx, buffer, position, itemsize, count):
    """Ask the L2 cache for ``count`` elements from ``buffer[position]``: one ``cp.async.bulk.prefetch.L2`` of one thread.

    For sm_90 and later; nothing on the CPU. The address and the length must be multiples of 16 bytes. Reads nothing, so it is
    safe before the data is written.
    """

    def codegen(context, builder, sig, args):
        if on_gpu(builder):
            address = builder.add(args[0], builder.mul(args[1], args[2]))
            size = builder.trunc(builder.mul(args[3], args[2]), I32)
            text = "cp.async.bulk.prefetch.L2.global [$0], $1;"
            asm(builder, text, ir.VoidType(), "l,r", [address, size], side_effect=True)
        return context.get_dummy_value()

    return types.void(buffer, types.int64, types.int64, types.int64), codegen


@intrinsic
def put(typingctx, array, slot, vector):
    """Keep a vector of ``n`` in a ``cuda.local.array``: ``array[slot * n : (slot + 1) * n]``.

    With a slot that is constant once loops are unrolled, the array lives in registers and this costs nothing.
    """

    def codegen(context, builder, sig, args):
        count = sig.args[2].count
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        start = builder.mul(args[1], I64(count))
        for k, value in enumerate(elements(builder, args[2], count)):
            builder.store(value, builder.gep(data, [builder.add(start, I64(k))], inbounds=True))
        return context.get_dummy_value()

    return types.void(array, types.int64, vector), codegen


def make_get(count: int) -> Callable[..., Any]:
    """``get(array, slot) -> vector`` of ``count`` elements: the counterpart of :func:`put`."""

    @intrinsic
    def get(typingctx, array, slot):
        def codegen(context, builder, sig, args):
            data = context.make_array(sig.args[0])(context, builder, args[0]).data
            start = builder.mul(args[1], I64(count))
            values = [builder.load(builder.gep(data, [builder.add(start, I64(k))], inbounds=True)) for k in range(count)]
            return make_tuple(context, builder, sig.return_type, values)

        return types.UniTuple(array.dtype, count)(array, types.int64), codegen

    return get


def _vector_at(context, builder, array_type, array, first, count: int):
    """(pointer to ``array[first : first + count]`` as one vector, its alignment)."""
    element = element_pointer(context, builder, array_type, array, first, count)
    alignment = array_type.dtype.bitwidth // 8 * (count if on_gpu(builder) else 1)
    return builder.bitcast(element, ir.PointerType(ir.VectorType(element.type.pointee, count))), alignment


def make_shared_store(count: int) -> Callable[..., Any]:
    """``shared_store(array, first, vector)``: ``array[first : first + count] = vector`` in one access, 1, 2 or 4 elements.

    ``array`` is a ``cuda.shared.array``, ``first`` a multiple of ``count``. Four words are one ``st.shared.v4``.
    """

    @intrinsic
    def shared_store(typingctx, array, first, vector):
        def codegen(context, builder, sig, args):
            pointer, alignment = _vector_at(context, builder, sig.args[0], args[0], args[1], count)
            packed = ir.Constant(pointer.type.pointee, ir.Undefined)
            for k, value in enumerate(elements(builder, args[2], count)):
                packed = builder.insert_element(packed, value, I32(k))
            builder.store(packed, pointer).align = alignment
            return context.get_dummy_value()

        return types.void(array, types.int64, types.UniTuple(array.dtype, count)), codegen

    shared_store.memory_access = ("write", count)  # type: ignore[attr-defined]
    return shared_store


def make_shared_load(count: int) -> Callable[..., Any]:
    """``shared_load(array, first) -> vector``: the counterpart of :func:`make_shared_store`."""

    @intrinsic
    def shared_load(typingctx, array, first):
        def codegen(context, builder, sig, args):
            pointer, alignment = _vector_at(context, builder, sig.args[0], args[0], args[1], count)
            got = builder.load(pointer)
            got.align = alignment
            values = [builder.extract_element(got, I32(k)) for k in range(count)]
            return make_tuple(context, builder, sig.return_type, values)

        return types.UniTuple(array.dtype, count)(array, types.int64), codegen

    shared_load.memory_access = ("read", count)  # type: ignore[attr-defined]
    return shared_load

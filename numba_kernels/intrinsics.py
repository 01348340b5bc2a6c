"""Everything here depends on numba-cuda's code generation: memory access, conversions, inline PTX, approximate arithmetic.

One object serves both targets: made with ``numba.extending.intrinsic`` it works under ``@njit`` (the CPU replay) and in CUDA
kernels; the module's triple tells which code to emit. A port to another compiler rewrites this module and nothing else.

A *buffer* is a 1-D array on the CPU (its bounds are checked) and a bare 64-bit address on the GPU. Positions count elements; a
load or store takes one in two parts, ``start + jump``: 64 bits that its neighbours share, and 32 bits of its own.
A *vector* is a homogeneous tuple: ``n`` fp32 values, or the raw 32-bit words that hold them in storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()


def _on_gpu(builder: Any) -> bool:
    return "nvptx" in builder.module.triple


def _asm(builder, text: str, result: ir.Type, constraints: str, args=(), *, side_effect: bool = False):
    kind = ir.FunctionType(result, [a.type for a in args])
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=side_effect), list(args))


def _elements(builder, vector, count: int) -> list:
    return [builder.extract_value(vector, k) for k in range(count)]


def _tuple(context, builder, kind, values):
    return context.make_tuple(builder, kind, values)


# --- addresses -----------------------------------------------------------------------------------------------------------


def _place(context, builder, buffer_type, buffer, start, jump, itemsize: int, count: int):
    """A byte pointer to ``buffer[start + jump]``; on the CPU ``count`` elements from there are checked to lie inside.

    A pointer, not a sum of integers: the compiler would add the two positions before it scales them, for each jump anew.
    """
    if isinstance(buffer_type, types.Array):
        array = context.make_array(buffer_type)(context, builder, buffer)
        position = builder.add(start, builder.sext(jump, I64))
        end = builder.add(position, I64(count))
        outside = builder.or_(builder.icmp_signed("<", position, I64(0)), builder.icmp_signed(">", end, array.nitems))
        with builder.if_then(outside, likely=False):
            context.call_conv.return_user_exc(builder, IndexError, ("access outside the buffer",))
        buffer = builder.ptrtoint(array.data, I64)
    first = builder.inttoptr(builder.add(buffer, builder.mul(start, I64(itemsize))), _pointer_type(builder, I8))
    return builder.gep(first, [builder.mul(builder.sext(jump, I64), I64(itemsize))])


def _pointer_type(builder, kind: ir.Type):
    return ir.PointerType(kind, addrspace=1 if _on_gpu(builder) else 0)


def _pointer(builder, place, offset: int, kind: ir.Type):
    """A pointer to a ``kind`` that lies ``offset`` bytes past ``place``."""
    return builder.bitcast(builder.gep(place, [I64(offset)]) if offset else place, _pointer_type(builder, kind))


def _is_buffer(kind) -> bool:
    return isinstance(kind, types.Array) or kind == types.uint64


# --- storage formats: words <-> fp32 --------------------------------------------------------------------------------------


class Format:
    """How one storage dtype keeps its values: itemsize in bytes, and the conversion of words to fp32 and back.

    ``suffix`` is PTX's name of it; ``minus_zero`` and ``one`` are the bits of -0 and 1.
    """

    name: str
    itemsize: int
    suffix: str
    minus_zero: int
    one: int

    def widen(self, builder, word, bits: int) -> list:
        """The fp32 values in one word of ``bits`` bits, first element first."""
        raise NotImplementedError

    def narrow(self, builder, values: list):
        """One word that holds the values, each rounded to nearest even."""
        raise NotImplementedError


class _Float32(Format):
    name, itemsize = "fp32", 4
    suffix, minus_zero, one = "f32", 0x80000000, 0x3F800000

    def widen(self, builder, word, bits):
        return [builder.bitcast(word, F32)]

    def narrow(self, builder, values):
        return builder.bitcast(values[0], I32)


class _BFloat16(Format):
    name, itemsize = "bf16", 2
    suffix, minus_zero, one = "bf16", 0x8000, 0x3F80

    def widen(self, builder, word, bits):
        if bits == 16:
            return [builder.bitcast(builder.shl(builder.zext(word, I32), I32(16)), F32)]
        low = builder.shl(word, I32(16))
        high = builder.and_(word, I32(0xFFFF0000))
        return [builder.bitcast(low, F32), builder.bitcast(high, F32)]

    def narrow(self, builder, values):
        if _on_gpu(builder):
            if len(values) == 1:
                return _asm(builder, "cvt.rn.bf16.f32 $0, $1;", I16, "=h,f", values)
            return _asm(builder, "cvt.rn.bf16x2.f32 $0, $2, $1;", I32, "=r,f,f", values)
        halves = [self._round(builder, v) for v in values]
        if len(halves) == 1:
            return builder.trunc(halves[0], I16)
        return builder.or_(halves[0], builder.shl(halves[1], I32(16)))

    @staticmethod
    def _round(builder, value):
        """Round to nearest even by adding half a step to the bits; a NaN becomes the canonical one, as cvt.rn does."""
        bits = builder.bitcast(value, I32)
        odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
        rounded = builder.lshr(builder.add(builder.add(bits, I32(0x7FFF)), odd), I32(16))
        return builder.select(builder.fcmp_unordered("uno", value, value), I32(0x7FFF), rounded)


class _Float16(Format):
    name, itemsize = "fp16", 2
    suffix, minus_zero, one = "f16", 0x8000, 0x3C00

    def widen(self, builder, word, bits):
        if bits == 16:
            return [builder.fpext(builder.bitcast(word, F16), F32)]
        low = builder.trunc(word, I16)
        high = builder.trunc(builder.lshr(word, I32(16)), I16)
        return [builder.fpext(builder.bitcast(half, F16), F32) for half in (low, high)]

    def narrow(self, builder, values):
        if _on_gpu(builder):
            if len(values) == 1:
                return _asm(builder, "cvt.rn.f16.f32 $0, $1;", I16, "=h,f", values)
            return _asm(builder, "cvt.rn.f16x2.f32 $0, $2, $1;", I32, "=r,f,f", values)
        halves = [builder.zext(builder.bitcast(builder.fptrunc(v, F16), I16), I32) for v in values]
        if len(halves) == 1:
            return builder.trunc(halves[0], I16)
        return builder.or_(halves[0], builder.shl(halves[1], I32(16)))


FORMATS: dict[str, Format] = {f.name: f for f in (_Float32(), _BFloat16(), _Float16())}


# --- loads and stores -----------------------------------------------------------------------------------------------------


def _word_bits(fmt: Format, count: int) -> int:
    """Vectors travel as 32-bit words; a single 16-bit element as one 16-bit word."""
    return 16 if fmt.itemsize == 2 and count == 1 else 32


def words_in(fmt: Format, count: int) -> int:
    """How many words hold ``count`` elements."""
    return max(1, count * fmt.itemsize // 4)


def word_type(fmt: Format, count: int):
    """The type of one word of a vector of ``count`` elements."""
    return types.uint16 if _word_bits(fmt, count) == 16 else types.uint32


def _words_type(fmt: Format, count: int):
    return types.UniTuple(word_type(fmt, count), words_in(fmt, count))


def make_load(fmt: Format, count: int, access: int) -> Callable[..., Any]:
    """``load(buffer, start, jump) -> words``: ``count`` elements by accesses of ``access`` bytes (2, 4, 8 or 16).

    Plain ``ld.global``: on an H200 the hints .cs, L1::no_allocate and L1::evict_first never won by more than the noise.
    """
    bits, words = _word_bits(fmt, count), words_in(fmt, count)

    @intrinsic
    def load(typingctx, buffer, start, jump):
        if not _is_buffer(buffer):
            return None

        def codegen(context, builder, sig, args):
            at = _place(context, builder, sig.args[0], args[0], args[1], args[2], fmt.itemsize, count)
            if access * 8 < bits:
                values = _load_halves(builder, at, words)
            elif access * 8 == bits:
                kind = ir.IntType(bits)
                values = [_load_one(builder, at, k * access, kind, access) for k in range(words)]
            else:
                values = _load_vectors(builder, at, words, access)
            return _tuple(context, builder, sig.return_type, values)

        return _words_type(fmt, count)(buffer, types.int64, types.int32), codegen

    return load


def _load_one(builder, place, offset: int, kind, align: int):
    value = builder.load(_pointer(builder, place, offset, kind))
    value.align = align if _on_gpu(builder) else 1
    return value


def _load_halves(builder, place, words: int) -> list:
    """32-bit words of storage that is only 2-byte aligned."""
    values = []
    for k in range(words):
        low = builder.zext(_load_one(builder, place, 4 * k, I16, 2), I32)
        high = builder.zext(_load_one(builder, place, 4 * k + 2, I16, 2), I32)
        values.append(builder.or_(low, builder.shl(high, I32(16))))
    return values


def _load_vectors(builder, place, words: int, access: int) -> list:
    lanes = access // 4
    values = []
    for k in range(0, words, lanes):
        got = builder.load(_pointer(builder, place, 4 * k, ir.VectorType(I32, lanes)))
        got.align = access if _on_gpu(builder) else 1  # a CPU takes any address
        values += [builder.extract_element(got, I32(i)) for i in range(lanes)]
    return values


def make_store(fmt: Format, count: int, access: int) -> Callable[..., Any]:
    """``store(buffer, start, jump, words)``: the counterpart of :func:`make_load`."""
    bits, words = _word_bits(fmt, count), words_in(fmt, count)

    @intrinsic
    def store(typingctx, buffer, start, jump, vector):
        if not _is_buffer(buffer):
            return None

        def codegen(context, builder, sig, args):
            at = _place(context, builder, sig.args[0], args[0], args[1], args[2], fmt.itemsize, count)
            values = _elements(builder, args[3], words)
            if access * 8 < bits:
                for k, word in enumerate(values):
                    _store_one(builder, at, 4 * k, builder.trunc(word, I16), 2)
                    _store_one(builder, at, 4 * k + 2, builder.trunc(builder.lshr(word, I32(16)), I16), 2)
            elif access * 8 == bits:
                for k, word in enumerate(values):
                    _store_one(builder, at, k * access, word, access)
            else:
                _store_vectors(builder, at, values, access)
            return context.get_dummy_value()

        return types.void(buffer, types.int64, types.int32, _words_type(fmt, count)), codegen

    return store


def _store_one(builder, place, offset: int, value, align: int) -> None:
    stored = builder.store(value, _pointer(builder, place, offset, value.type))
    stored.align = align if _on_gpu(builder) else 1


def _store_vectors(builder, place, values: list, access: int) -> None:
    lanes = access // 4
    for k in range(0, len(values), lanes):
        vector = ir.Constant(ir.VectorType(I32, lanes), ir.Undefined)
        for i, word in enumerate(values[k : k + lanes]):
            vector = builder.insert_element(vector, word, I32(i))
        stored = builder.store(vector, _pointer(builder, place, 4 * k, vector.type))
        stored.align = access if _on_gpu(builder) else 1


def make_widen(fmt: Format, count: int) -> Callable[..., Any]:
    """``widen(words) -> fp32 vector``."""
    bits, words = _word_bits(fmt, count), words_in(fmt, count)

    @intrinsic
    def widen(typingctx, vector):
        def codegen(context, builder, sig, args):
            values = [v for w in _elements(builder, args[0], words) for v in fmt.widen(builder, w, bits)]
            return _tuple(context, builder, sig.return_type, values)

        return types.UniTuple(types.float32, count)(_words_type(fmt, count)), codegen

    return widen


def make_narrow(fmt: Format, count: int) -> Callable[..., Any]:
    """``narrow(fp32 vector) -> words``: each value rounded once to the storage dtype, to nearest even."""
    per_word = 1 if count == 1 else 4 // fmt.itemsize

    @intrinsic
    def narrow(typingctx, vector):
        def codegen(context, builder, sig, args):
            values = _elements(builder, args[0], count)
            packed = [fmt.narrow(builder, values[k : k + per_word]) for k in range(0, count, per_word)]
            return _tuple(context, builder, sig.return_type, packed)

        return _words_type(fmt, count)(types.UniTuple(types.float32, count)), codegen

    return narrow


def _make_rounded(fmt: Format, count: int, on_gpu: Callable[..., Any], on_cpu: Callable[..., Any]) -> Callable[..., Any]:
    """``operation(words, words) -> words``, rounded once to the storage dtype.

    On the GPU one fused multiply-add on a word, two elements at a time. The CPU's way by fp32 gives the same bits: fp32 has more
    than twice the digits of a 16-bit format, and two to spare, so that rounding twice is rounding once.
    """
    bits = _word_bits(fmt, count)
    per_word = bits // (8 * fmt.itemsize)
    kind = ir.IntType(bits)

    def both(value: int):
        return kind(value | value << 16 if per_word == 2 else value)

    @intrinsic
    def operation(typingctx, left, right):
        def codegen(context, builder, sig, args):
            found = []
            for a, b in zip(*(_elements(builder, vector, words_in(fmt, count)) for vector in args), strict=True):
                if _on_gpu(builder) and fmt.itemsize == 2:
                    first, second, third = on_gpu(a, b, both)
                    text = f"fma.rn.{fmt.suffix}{'x2' if per_word == 2 else ''} $0, $1, $2, $3;"
                    register = "r" if per_word == 2 else "h"
                    constraints = f"={register},{register},{register},{register}"
                    found.append(_asm(builder, text, kind, constraints, [first, second, third]))
                else:
                    pairs = zip(fmt.widen(builder, a, bits), fmt.widen(builder, b, bits), strict=True)
                    found.append(fmt.narrow(builder, [on_cpu(builder, x, y) for x, y in pairs]))
            return _tuple(context, builder, sig.return_type, found)

        words = _words_type(fmt, count)
        return words(words, words), codegen

    return operation


def make_rounded_sum(fmt: Format, count: int) -> Callable[..., Any]:
    """``rounded_sum(words, words) -> words``: elementwise sums in the storage dtype."""
    return _make_rounded(fmt, count, lambda a, b, both: (a, both(fmt.one), b), lambda builder, x, y: builder.fadd(x, y))


def make_rounded_product(fmt: Format, count: int) -> Callable[..., Any]:
    """``rounded_product(words, words) -> words``: elementwise products in the storage dtype. (-0 added changes no product.)"""
    return _make_rounded(fmt, count, lambda a, b, both: (a, b, both(fmt.minus_zero)), lambda builder, x, y: builder.fmul(x, y))


@intrinsic
def prefetch_run(typingctx, buffer, position, itemsize, count):
    """Ask the L2 cache for ``count`` elements from ``buffer[position]``: one instruction of one thread (sm_90 and later).

    The address and the length must be multiples of 16 bytes. Reads nothing, so it is safe before the data is written.
    """

    def codegen(context, builder, sig, args):
        if _on_gpu(builder):
            address = builder.add(args[0], builder.mul(args[1], args[2]))
            size = builder.trunc(builder.mul(args[3], args[2]), I32)
            text = "cp.async.bulk.prefetch.L2.global [$0], $1;"
            _asm(builder, text, ir.VoidType(), "l,r", [address, size], side_effect=True)
        return context.get_dummy_value()

    return types.void(buffer, types.int64, types.int64, types.int64), codegen


# --- vectors of fp32 ------------------------------------------------------------------------------------------------------


def _map(emit: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise operation on vectors; a scalar operand is used for every element."""

    @intrinsic
    def binary(typingctx, a, b):
        if not isinstance(a, types.UniTuple):
            return None

        def codegen(context, builder, sig, args):
            count = sig.args[0].count
            left = _elements(builder, args[0], count)
            is_vector = isinstance(sig.args[1], types.UniTuple)
            right = _elements(builder, args[1], count) if is_vector else [args[1]] * count
            return _tuple(context, builder, sig.return_type, [emit(builder, x, y) for x, y in zip(left, right, strict=True)])

        return a(a, b if isinstance(b, types.UniTuple) else types.float32), codegen

    return binary


vector_add = _map(lambda builder, a, b: builder.fadd(a, b))
vector_mul = _map(lambda builder, a, b: builder.fmul(a, b))


@intrinsic
def keep_if(typingctx, condition, vector):
    """The vector where the condition holds, zeros where not: no branch, so loads before it stay in flight together."""

    def codegen(context, builder, sig, args):
        zero = ir.Constant(F32, 0.0)
        kept = [builder.select(args[0], v, zero) for v in _elements(builder, args[1], sig.args[1].count)]
        return _tuple(context, builder, sig.return_type, kept)

    return vector(types.boolean, vector), codegen


@intrinsic
def sum_squares(typingctx, accumulator, vector):
    """``accumulator`` plus each element squared, first element first, one fused multiply-add each (the same bits everywhere)."""

    def codegen(context, builder, sig, args):
        total = args[0]
        for value in _elements(builder, args[1], sig.args[1].count):
            total = builder.fma(value, value, total)
        return total

    return types.float32(types.float32, vector), codegen


def _element(context, builder, array_type, array, index):
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index], inbounds=True)


@intrinsic
def put(typingctx, array, slot, vector):
    """Keep a vector in a per-thread array: ``array[slot * n : (slot + 1) * n]``."""

    def codegen(context, builder, sig, args):
        count = sig.args[2].count
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        start = builder.mul(args[1], I64(count))
        for k, value in enumerate(_elements(builder, args[2], count)):
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
            return _tuple(context, builder, sig.return_type, values)

        return types.UniTuple(array.dtype, count)(array, types.int64), codegen

    return get


# --- vectors in shared memory ---------------------------------------------------------------------------------------------


def _part_at(context, builder, array_type, array, first, count: int):
    """(pointer to ``array[first : first + count]`` as one vector, its alignment)."""
    element = _element(context, builder, array_type, array, first)
    alignment = array_type.dtype.bitwidth // 8 * (count if _on_gpu(builder) else 1)
    return builder.bitcast(element, ir.PointerType(ir.VectorType(element.type.pointee, count))), alignment


def make_store_part(count: int) -> Callable[..., Any]:
    """``store_part(array, first, vector)``: ``array[first : first + count] = vector`` in one access, 1, 2 or 4 elements.

    ``first`` must be a multiple of ``count``.
    """

    @intrinsic
    def store_part(typingctx, array, first, vector):
        def codegen(context, builder, sig, args):
            pointer, alignment = _part_at(context, builder, sig.args[0], args[0], args[1], count)
            packed = ir.Constant(pointer.type.pointee, ir.Undefined)
            for k, value in enumerate(_elements(builder, args[2], count)):
                packed = builder.insert_element(packed, value, I32(k))
            builder.store(packed, pointer).align = alignment
            return context.get_dummy_value()

        return types.void(array, types.int64, types.UniTuple(array.dtype, count)), codegen

    store_part.memory_access = ("write", count)  # type: ignore[attr-defined]
    return store_part


def make_load_part(count: int) -> Callable[..., Any]:
    """``load_part(array, first) -> vector``: the counterpart of :func:`make_store_part`."""

    @intrinsic
    def load_part(typingctx, array, first):
        def codegen(context, builder, sig, args):
            pointer, alignment = _part_at(context, builder, sig.args[0], args[0], args[1], count)
            got = builder.load(pointer)
            got.align = alignment
            values = [builder.extract_element(got, I32(k)) for k in range(count)]
            return _tuple(context, builder, sig.return_type, values)

        return types.UniTuple(array.dtype, count)(array, types.int64), codegen

    load_part.memory_access = ("read", count)  # type: ignore[attr-defined]
    return load_part


# --- scalar arithmetic ----------------------------------------------------------------------------------------------------


def _unary(on_gpu: Callable[..., Any], on_cpu: Callable[..., Any]) -> Callable[..., Any]:
    @intrinsic
    def operation(typingctx, x):
        def codegen(context, builder, sig, args):
            return (on_gpu if _on_gpu(builder) else on_cpu)(context, builder, args[0])

        return types.float32(types.float32), codegen

    return operation


def _ptx(text: str) -> Callable[..., Any]:
    return lambda context, builder, x: _asm(builder, text, F32, "=f,f", [x])


def _llvm(name: str) -> Callable[..., Any]:
    def emit(context, builder, x):
        return builder.call(builder.module.declare_intrinsic(name, [F32]), [x])

    return emit


def _clear_sign(context, builder, x):
    return builder.bitcast(builder.and_(builder.bitcast(x, I32), I32(0x7FFFFFFF)), F32)


ONE = ir.Constant(F32, 1.0)

# rsqrt.approx: at most 2^-22.9 relative error (PTX ISA, rsqrt). The CPU's form is correctly rounded twice.
rsqrt = _unary(
    _ptx("rsqrt.approx.f32 $0, $1;"),
    lambda context, builder, x: builder.fdiv(ONE, _llvm("llvm.sqrt")(context, builder, x)),
)
# ex2.approx: 2 ULP over the full range, subnormal results kept (PTX ISA, ex2).
exp2_approx = _unary(_ptx("ex2.approx.f32 $0, $1;"), _llvm("llvm.exp2"))
# rcp.approx: 1 ULP (PTX ISA, rcp). ftz, which spares three instructions, takes subnormal arguments for zero.
reciprocal_approx = _unary(_ptx("rcp.approx.ftz.f32 $0, $1;"), lambda context, builder, x: builder.fdiv(ONE, x))
reciprocal = _unary(_ptx("rcp.rn.f32 $0, $1;"), lambda context, builder, x: builder.fdiv(ONE, x))
absolute = _unary(_clear_sign, _clear_sign)


@intrinsic
def divide(typingctx, a, b):
    """fp32 division rounded to nearest; no Python error model."""

    def codegen(context, builder, sig, args):
        return builder.fdiv(args[0], args[1])

    return types.float32(types.float32, types.float32), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """a * b + c, rounded once."""

    def codegen(context, builder, sig, args):
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


@intrinsic
def float_from_bits(typingctx, bits):
    """The fp32 value whose bits are the low 32 of ``bits`` (a launch passes eps this way: no fp64 reaches the kernel)."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(builder.trunc(args[0], I32), F32)

    return types.float32(types.int64), codegen


# --- programmatic dependent launch ----------------------------------------------------------------------------------------


def _statement(text: str) -> Callable[..., Any]:
    @intrinsic
    def operation(typingctx):
        def codegen(context, builder, sig, args):
            if _on_gpu(builder):
                _asm(builder, text, ir.VoidType(), "~{memory}", side_effect=True)
            return context.get_dummy_value()

        return types.void(), codegen

    return operation


wait_for_predecessor = _statement("griddepcontrol.wait;")
release_dependents = _statement("griddepcontrol.launch_dependents;")


# --- thread-block clusters ------------------------------------------------------------------------------------------------

# Every block of the cluster says that it has started; the wait then makes each one's shared memory safe to write. Once a launch
# only: the arrival fences every earlier access to memory, which a row's sum must not wait for (see send_to_block).
cluster_arrive = _statement("barrier.cluster.arrive.aligned;")
cluster_wait = _statement("barrier.cluster.wait.aligned;")
cluster_wait.waits_for = "cluster"  # type: ignore[attr-defined]

# On the CPU replay: bytes between the shared memories of a cluster's blocks, so many at most, the first one's at a multiple of
# all these bytes; and a mailbox is a word with the words still to come in its lower half, above them whether its thread has
# arrived and its phase.
BLOCK_SPAN, MOST_BLOCKS = 1 << 18, 16


def _in_block(builder, pointer, rank):
    """The same place in the shared memory of the cluster's block ``rank``, on the CPU."""
    address = builder.ptrtoint(pointer, I64)
    cluster = builder.and_(address, I64(-MOST_BLOCKS * BLOCK_SPAN))
    inside = builder.and_(address, I64(BLOCK_SPAN - 1))
    place = builder.or_(builder.or_(cluster, inside), builder.mul(builder.zext(rank, I64), I64(BLOCK_SPAN)))
    return builder.inttoptr(place, pointer.type)


def _change_mailbox(builder, pointer, *, arrives: bool, words) -> None:
    """A mailbox's phase ends, on the CPU, when its thread has arrived and no words are still to come."""
    word = builder.load(pointer)
    to_come = builder.add(builder.trunc(word, I32), words)
    above = builder.or_(builder.lshr(word, I64(32)), I64(int(arrives)))
    ends = builder.and_(builder.icmp_signed("==", to_come, I32(0)), builder.trunc(above, ir.IntType(1)))
    above = builder.add(above, builder.zext(ends, I64))
    builder.store(builder.or_(builder.shl(above, I64(32)), builder.zext(to_come, I64)), pointer)


def _shared_address(context, builder, array_type, array, index):
    """The 32-bit address of ``array[index]`` in shared memory."""
    element = _element(context, builder, array_type, array, index)
    return builder.ptrtoint(builder.addrspacecast(element, ir.PointerType(element.type.pointee, addrspace=3)), I32)


@intrinsic
def make_mailbox(typingctx, mailboxes, which):
    """``mailboxes[which]``, of a shared array of 64-bit words, becomes a barrier (an mbarrier) that one thread arrives at."""

    def codegen(context, builder, sig, args):
        if _on_gpu(builder):
            at = _shared_address(context, builder, sig.args[0], args[0], args[1])
            text = "mbarrier.init.shared::cta.b64 [$0], 1; fence.mbarrier_init.release.cluster;"
            _asm(builder, text, ir.VoidType(), "r,~{memory}", [at], side_effect=True)
        else:
            builder.store(I64(0), _element(context, builder, sig.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(mailboxes, types.int64), codegen


@intrinsic
def expect_words(typingctx, mailboxes, which, count):
    """Arrive at a mailbox, whose phase then ends when ``count`` words of 32 bits have been sent to it."""

    def codegen(context, builder, sig, args):
        if _on_gpu(builder):
            at = _shared_address(context, builder, sig.args[0], args[0], args[1])
            text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
            _asm(builder, text, ir.VoidType(), "r,r,~{memory}", [at, builder.mul(args[2], I32(4))], side_effect=True)
        else:
            at = _element(context, builder, sig.args[0], args[0], args[1])
            _change_mailbox(builder, at, arrives=True, words=args[2])
        return context.get_dummy_value()

    return types.void(mailboxes, types.int64, types.int32), codegen


@intrinsic
def wait_for_words(typingctx, mailboxes, which, parity):
    """Wait for the end of a mailbox's phase of this parity (the first one's is 0)."""

    def codegen(context, builder, sig, args):
        if _on_gpu(builder):
            at = _shared_address(context, builder, sig.args[0], args[0], args[1])
            text = "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @!p bra.uni AGAIN; }"
            _asm(builder, text, ir.VoidType(), "r,r,~{memory}", [at, args[2]], side_effect=True)
        return context.get_dummy_value()

    return types.void(mailboxes, types.int64, types.int32), codegen


@intrinsic
def send_to_block(typingctx, shared, index, value, rank, mailboxes, which):
    """``shared[index] = value``, of 32 bits, in the cluster's block ``rank``, counted by its mailbox ``which``.

    No fence goes with it: stores to memory that are still under way are not waited for.
    """

    def codegen(context, builder, sig, args):
        if _on_gpu(builder):
            here = [_shared_address(context, builder, sig.args[k], args[k], args[k + 1]) for k in (0, 4)]
            there = [_asm(builder, "mapa.shared::cluster.u32 $0, $1, $2;", I32, "=r,r,r", [at, args[3]]) for at in here]
            text = "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], $1, [$2];"
            value = builder.bitcast(args[2], I32)
            _asm(builder, text, ir.VoidType(), "r,r,r,~{memory}", [there[0], value, there[1]], side_effect=True)
        else:
            here = [_element(context, builder, sig.args[k], args[k], args[k + 1]) for k in (0, 4)]
            element, mailbox = (_in_block(builder, at, args[3]) for at in here)
            builder.store(args[2], element)
            _change_mailbox(builder, mailbox, arrives=False, words=I32(-1))
        return context.get_dummy_value()

    return types.void(shared, types.int64, shared.dtype, types.int32, mailboxes, types.int64), codegen


@intrinsic
def words_are_there(typingctx, mailboxes, which, parity):
    """Whether a mailbox's phase of this parity has ended, on the CPU."""

    def codegen(context, builder, sig, args):
        word = builder.load(_element(context, builder, sig.args[0], args[0], args[1]))
        phase = builder.and_(builder.lshr(word, I64(33)), I64(1))
        return builder.icmp_signed("!=", phase, builder.zext(args[2], I64))

    return types.boolean(mailboxes, types.int64, types.int32), codegen


wait_for_words.waits_for = words_are_there  # type: ignore[attr-defined]


# --- rows in the order in which blocks become free ------------------------------------------------------------------------

COUNTERS = 1 << 14  # of each compiled kernel: one for each stream and each captured launch (see counters.py)


@intrinsic
def draw(typingctx, counter, draws):
    """How many have drawn from counter number ``counter`` before; the last of ``draws`` in all sets it back to 0.

    The counters are memory of the compiled kernel itself, 0 when it is loaded.
    """

    def codegen(context, builder, sig, args):
        kind = ir.ArrayType(I32, COUNTERS)
        counters = ir.GlobalVariable(builder.module, kind, "counters", addrspace=1 if _on_gpu(builder) else 0)
        counters.linkage, counters.initializer = "internal", ir.Constant(kind, None)
        at = builder.gep(counters, [I32(0), args[0]])
        before = builder.atomic_rmw("add", at, I32(1), "monotonic")
        with builder.if_then(builder.icmp_signed("==", before, builder.sub(args[1], I32(1)))):
            builder.store(I32(0), at)
        return before

    return types.int32(types.int32, types.int32), codegen

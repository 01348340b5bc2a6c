"""Compiled access to words: the environment's, and those of one element a thread that its words point to."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import extending, int64
from numba.core import types

from .environment import Env

# Numba's annotations describe the function that is decorated, not what compiled code calls.
intrinsic: Any = extending.intrinsic
overload: Any = extending.overload
njit: Any = numba.njit

TICKS, LOOK, STOPPED = int(Env.TICKS), int(Env.LOOK), int(Env.STOPPED)
TICKS_BETWEEN = 1 << 18  # a millisecond of turns that do nothing else
I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def quiet(builder: Any, access: Any) -> Any:
    """A load or store of the emulator's own, which the account of memory leaves out."""
    access.set_metadata("nosanitize", builder.module.add_metadata([]))
    return access


def word_at(builder: Any, base: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(base, I64.as_pointer()), [index])


def env_word(builder: Any, env: Any, word: int) -> Any:
    return quiet(builder, builder.load(word_at(builder, env, I64(int(word)))))


def put(builder: Any, env: Any, thread: Any, word: Env, value: Any) -> None:
    """Store ``value`` in the thread's element of the array that a word of the environment points to."""
    quiet(builder, builder.store(value, word_at(builder, env_word(builder, env, word), thread)))


@intrinsic
def peek(typingctx, base, index):
    """The int64 word ``index`` of the array at address ``base``."""

    def codegen(context, builder, sig, args):
        return quiet(builder, builder.load(word_at(builder, *args)))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def poke(typingctx, base, index, value):
    """Store int64 ``value`` in word ``index`` of the array at address ``base``."""

    def codegen(context, builder, sig, args):
        quiet(builder, builder.store(args[2], word_at(builder, args[0], args[1])))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def peek_bytes(typingctx, address, size):
    """The 1, 2, 4 or 8 bytes at an address, as an unsigned integer's bits."""

    def codegen(context, builder, sig, args):
        found = builder.alloca(I64)
        builder.store(I64(0), found)
        for count in (1, 2, 4, 8):
            with builder.if_then(builder.icmp_unsigned("==", args[1], I64(count))):
                kind = ir.IntType(8 * count)
                bits = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
                builder.store(bits if count == 8 else builder.zext(bits, I64), found)
        return builder.load(found)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def mark(typingctx, env, location):
    """Record the source location that runs; always true, so that it can stand before a loop's condition."""

    def codegen(context, builder, sig, args):
        quiet(builder, builder.store(args[1], word_at(builder, args[0], I64(int(Env.LOCATION)))))
        return ir.Constant(ir.IntType(1), 1)

    return types.boolean(types.int64, types.int64), codegen


@intrinsic
def passed(typingctx, env):
    """Count a condition that has come true."""

    def codegen(context, builder, sig, args):
        word = word_at(builder, args[0], I64(int(Env.PASSED)))
        quiet(builder, builder.store(builder.add(quiet(builder, builder.load(word)), I64(1)), word))
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def word32(typingctx, env, word):
    """A word of the environment in the type that CUDA's indices have."""

    def codegen(context, builder, sig, args):
        return builder.trunc(quiet(builder, builder.load(word_at(builder, *args))), I32)

    return types.int32(types.int64, types.int64), codegen


def _remainder(builder: Any, value: Any, divisor: Any) -> Any:
    """``value % divisor``, where they are mostly the same: a division takes 30 cycles."""
    before = builder.basic_block
    with builder.if_then(builder.icmp_unsigned(">=", value, divisor), likely=False):
        rest, divides = builder.urem(value, divisor), builder.basic_block
    found = builder.phi(I64)
    found.add_incoming(value, before)
    found.add_incoming(rest, divides)
    return found


def _thread_index(axis: int) -> Any:
    """``threadIdx`` of one axis from the thread's number in its block."""

    @intrinsic
    def thread_index(typingctx, env, thread):
        def codegen(context, builder, sig, args):
            value = _remainder(builder, args[1], env_word(builder, args[0], Env.PADDED))
            for word in (Env.DIM_X, Env.DIM_Y)[:axis]:
                value = builder.udiv(value, env_word(builder, args[0], word))
            if axis < 2:
                value = _remainder(builder, value, env_word(builder, args[0], Env.DIM_X + axis))
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


@intrinsic
def lanes_below(typingctx, thread):
    """A bit for each lane of the warp before this one."""

    def codegen(context, builder, sig, args):
        lane = builder.trunc(builder.and_(args[0], I64(31)), I32)
        return builder.sub(builder.shl(I32(1), lane), I32(1))

    return types.int32(types.int64), codegen


@intrinsic
def call_address(typingctx, address):
    """Call the C function at an address, which takes and returns nothing."""

    def codegen(context, builder, sig, args):
        function = ir.FunctionType(ir.VoidType(), ())
        builder.call(builder.inttoptr(args[0], function.as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


class Stopped(Exception):
    """Raised in compiled code: the user wants the launch to end."""


@njit
def tick(env):
    """Now and then, look whether the user wants the launch to end."""
    left = peek(env, TICKS) - 1
    if left <= 0:
        left = int64(TICKS_BETWEEN)
        call_address(peek(env, LOOK))
    poke(env, TICKS, left)
    if peek(env, STOPPED) != 0:
        raise Stopped


@intrinsic
def finish(typingctx, env, thread):
    """The thread ran off the kernel's end (and did not return before it)."""

    def codegen(context, builder, sig, args):
        put(builder, args[0], args[1], Env.ENDED, I64(2))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen

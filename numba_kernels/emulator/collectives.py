"""What a thread brings to a shuffle, a vote or a barrier before it waits, and what it takes when it goes on."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from .environment import Env
from .words import I32, I64, env_word, intrinsic, put, quiet, word_at


def _put_mask(context: Any, builder: Any, env: Any, thread: Any, mask: Any, kind: Any) -> None:
    wide = context.cast(builder, mask, kind, types.int64)
    put(builder, env, thread, Env.MASKS, builder.and_(wide, I64(0xFFFFFFFF)))


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
            put(builder, env, thread, Env.VALUES, value if value.type == I64 else builder.zext(value, I64))
            lane = builder.and_(thread, I64(31))
            wide = context.cast(builder, argument, kinds[2], types.int64)
            put(builder, env, thread, Env.SOURCES, _shuffle_source(builder, name, lane, wide))
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
        put(builder, args[0], args[1], Env.VALUES, builder.zext(holds, I64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, *kinds), codegen


@intrinsic
def offer_match(typingctx, env, thread, mask, value):
    """A lane's mask and the bits of its value."""
    kinds = [_plain(k) for k in (mask, value)]
    if None in kinds:
        return None

    def codegen(context, builder, sig, args):
        env, thread, mask, value = args
        _put_mask(context, builder, env, thread, mask, kinds[0])
        if isinstance(kinds[1], types.Float):
            value = builder.bitcast(value, ir.IntType(kinds[1].bitwidth))
        put(builder, env, thread, Env.VALUES, value if value.type == I64 else builder.zext(value, I64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, *kinds), codegen


@intrinsic
def answer_match(typingctx, env, thread):
    """``match_all_sync``: (the mask, True) or (0, False)."""

    def codegen(context, builder, sig, args):
        bits = quiet(builder, builder.load(word_at(builder, env_word(builder, args[0], Env.ANSWERS), args[1])))
        return context.make_tuple(builder, sig.return_type, [builder.trunc(bits, I32), builder.icmp_unsigned("!=", bits, I64(0))])

    return types.Tuple((types.int32, types.boolean))(types.int64, types.int64), codegen


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
        bits = quiet(builder, builder.load(word_at(builder, env_word(builder, args[0], Env.ANSWERS), args[1])))
        native = context.get_value_type(kind)
        if not isinstance(kind, types.Float):
            return bits if native == I64 else builder.trunc(bits, native)
        return builder.bitcast(bits if kind.bitwidth == 64 else builder.trunc(bits, ir.IntType(kind.bitwidth)), native)

    return kind(types.int64, types.int64, kind), codegen


def _answer(kind: Any) -> Any:
    @intrinsic
    def answer(typingctx, env, thread):
        def codegen(context, builder, sig, args):
            bits = quiet(builder, builder.load(word_at(builder, env_word(builder, args[0], Env.ANSWERS), args[1])))
            return builder.trunc(bits, I32) if kind is types.int32 else builder.icmp_unsigned("!=", bits, I64(0))

        return kind(types.int64, types.int64), codegen

    return answer


answer_count, answer_flag = _answer(types.int32), _answer(types.boolean)

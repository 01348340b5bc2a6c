"""One element at a time, as fp32: for kernels that put plainness first. Each access is one ``ld.global`` or ``st.global``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..formats import Format
from .codegen import I32
from .conversions import narrow_word, widen_word
from .memory import is_buffer, load_word, place_of, store_word


def make_read(fmt: Format) -> Callable[..., Any]:
    """``read(buffer, position) -> value``: element number ``position``, exactly."""
    bits = 8 * fmt.itemsize

    @intrinsic
    def read(typingctx, buffer, position):
        if not is_buffer(buffer):
            return None

        def codegen(context, builder, sig, args):
            at = place_of(context, builder, sig.args[0], args[0], args[1], I32(0), fmt.itemsize, 1)
            return widen_word(fmt, builder, load_word(builder, at, 0, ir.IntType(bits), fmt.itemsize), bits)[0]

        return types.float32(buffer, types.int64), codegen

    return read


def make_write(fmt: Format) -> Callable[..., Any]:
    """``write(buffer, position, value)``: the value rounded once to storage, to nearest even."""

    @intrinsic
    def write(typingctx, buffer, position, value):
        if not is_buffer(buffer):
            return None

        def codegen(context, builder, sig, args):
            at = place_of(context, builder, sig.args[0], args[0], args[1], I32(0), fmt.itemsize, 1)
            store_word(builder, at, 0, narrow_word(fmt, builder, [args[2]]), fmt.itemsize)
            return context.get_dummy_value()

        return types.void(buffer, types.int64, types.float32), codegen

    return write


def make_rounded(fmt: Format) -> Callable[..., Any]:
    """``rounded(value) -> value``: what storing the value and reading it back gives."""

    @intrinsic
    def rounded(typingctx, value):
        def codegen(context, builder, sig, args):
            return widen_word(fmt, builder, narrow_word(fmt, builder, [args[0]]), 8 * fmt.itemsize)[0]

        return types.float32(types.float32), codegen

    return rounded

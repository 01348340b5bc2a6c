"""Functions that mean something else in ``numba.cuda`` than on a CPU, or nothing there: what runs in their place."""

from __future__ import annotations

import functools
import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import cuda, extending
from numba.core import types

from . import half, libdevice
from .words import intrinsic, njit


def _rounding(name: str) -> Any:
    """``math.floor`` and its kin: a float in ``numba.cuda``, of the argument's type; of an integer, the same as float64."""

    @intrinsic
    def rounded(typingctx, x):
        kind = types.unliteral(x)
        if not isinstance(kind, types.Integer | types.Float | types.Boolean):
            return None
        made = kind if isinstance(kind, types.Float) else types.float64

        def codegen(context, builder, sig, args):
            value = context.cast(builder, args[0], kind, made)
            native = context.get_value_type(made)
            function = ir.FunctionType(native, (native,))
            callee = builder.module.globals.get(f"llvm.{name}.f{made.bitwidth}")
            if callee is None:
                callee = ir.Function(builder.module, function, f"llvm.{name}.f{made.bitwidth}")
            return builder.call(callee, [value])

        return made(kind), codegen

    return rounded


def _bits(name: str, *, constant: bool = False, result: Any = None) -> Any:
    """An LLVM function of the bits of an integer of 32 or 64 bits; ``constant``: it takes a flag, false, too."""

    @intrinsic
    def of_bits(typingctx, x):
        kind: Any = types.unliteral(x)
        if not isinstance(kind, types.Integer | types.Boolean):
            return None
        wide: Any = kind if getattr(kind, "bitwidth", 0) in (32, 64) else types.int32

        def codegen(context, builder, sig, args):
            value = context.cast(builder, args[0], kind, wide)
            parameters = [value, ir.Constant(ir.IntType(1), 0)] if constant else [value]
            found = _llvm(builder, f"llvm.{name}.i{wide.bitwidth}", value.type, parameters)
            return context.cast(builder, found, wide, sig.return_type)

        return (result or wide)(kind), codegen

    return of_bits


def _llvm(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    callee = builder.module.globals.get(name)
    if callee is None:
        callee = ir.Function(builder.module, ir.FunctionType(result, [a.type for a in arguments]), name)
    return builder.call(callee, arguments)


def _of_c(name: str) -> Any:
    """A function of C's library of two floats; integers are float64."""

    @intrinsic
    def called(typingctx, x, y):
        kinds = [types.unliteral(k) for k in (x, y)]
        if not all(isinstance(k, types.Integer | types.Float | types.Boolean) for k in kinds):
            return None
        made = types.float32 if all(k is types.float32 for k in kinds) else types.float64

        def codegen(context, builder, sig, args):
            values = [context.cast(builder, v, k, made) for v, k in zip(args, kinds, strict=True)]
            return _llvm(builder, f"{name}f" if made is types.float32 else name, values[0].type, values)

        return made(*kinds), codegen

    return called


@njit
def modf(x):
    """The fraction and the whole part, both with the sign of x."""
    whole = np.trunc(x)
    fraction = x - whole
    return math.copysign(type(x)(0) if math.isinf(x) else fraction, x), whole


_population = _bits("ctpop", result=types.int32)
_trailing = _bits("cttz", constant=True, result=types.int32)


@njit
def ffs(x):
    """One plus the number of the lowest bit set; 0 of 0."""
    return numba.int32(0) if x == 0 else numba.int32(_trailing(x) + 1)


@intrinsic
def fma(typingctx, a, b, c):
    """``a * b + c``, rounded once."""
    kinds = [types.unliteral(k) for k in (a, b, c)]
    if not all(isinstance(k, types.Integer | types.Float) for k in kinds):
        return None
    made = types.float32 if all(k is types.float32 for k in kinds) else types.float64

    def codegen(context, builder, sig, args):
        values = [context.cast(builder, v, k, made) for v, k in zip(args, kinds, strict=True)]
        return _llvm(builder, f"llvm.fma.f{made.bitwidth}", values[0].type, values)

    return made(*kinds), codegen


@njit
def selp(condition, a, b):
    return a if condition else b


@njit
def cbrt(x):
    """The real cube root, rounded as float64's: of a float32 within half a unit and a little."""
    if x == 0 or not math.isfinite(x):
        return x
    root = math.copysign(abs(float(x)) ** (1.0 / 3.0), x)
    return root - (root * root * root - x) / (3.0 * root * root)


SUBSTITUTES: dict[Any, Any] = {
    cuda.popc: _population,
    cuda.brev: _bits("bitreverse"),
    cuda.clz: _bits("ctlz", constant=True, result=types.int32),
    cuda.ffs: ffs,
    cuda.fma: fma,
    cuda.selp: selp,
    cuda.cbrt: cbrt,
    math.floor: _rounding("floor"),
    math.ceil: _rounding("ceil"),
    math.trunc: _rounding("trunc"),
    math.fmod: _of_c("fmod"),
    math.remainder: _of_c("remainder"),
    math.nextafter: _of_c("nextafter"),
    math.modf: modf,
}


@functools.cache
def _of_libdevice() -> dict[Any, Any]:
    own = {name: SUBSTITUTES[getattr(cuda, name)] for name in ("popc", "clz", "ffs", "brev", "fma", "cbrt")}
    own.update({name: SUBSTITUTES[getattr(math, name)] for name in ("fmod", "remainder", "nextafter")})
    return libdevice.substitutes(own)


def substitute_of(value: Any) -> Any:
    """What runs in place of a function; None where it is itself."""
    module = getattr(value, "__module__", None) or ""
    if module.endswith("cuda_fp16"):
        return half.substitutes().get(value)
    if module == "numba.cuda.libdevice":
        return _of_libdevice().get(value)
    try:
        return SUBSTITUTES.get(value)
    except TypeError:  # it can't be hashed
        return None


@extending.overload_method(types.Integer, "bit_count")
def _bit_count(x):
    return lambda x: _population(x)

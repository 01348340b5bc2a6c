"""float16 on a CPU, as numba-cuda types it: Numba has arrays of float16 there, and no values.

``enable`` teaches Numba's CPU target the type, once a kernel asks for it: each operation is rounded to float16, functions are
those of float32, rounded. What else that process compiles is typed as before.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
import re
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import boxing, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import default_manager
from numba.core.imputils import Registry
from numba.core.pythonapi import NativeValue, _unboxers
from numba.core.registry import cpu_target
from numba.core.typing.templates import AbstractTemplate, ConcreteTemplate, signature

from .words import njit

MODULE = "fp16"
F16, F32, F64 = types.float16, types.float32, types.float64
I32, I64 = ir.IntType(32), ir.IntType(64)
ARITHMETIC = {
    "fadd": (operator.add, operator.iadd),
    "fsub": (operator.sub, operator.isub),
    "fmul": (operator.mul, operator.imul),
    "fdiv": (operator.truediv, operator.itruediv),
}
ORDERED = {operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "=="}
ROUNDED = (
    math.ceil, math.floor, math.trunc, math.fabs, math.sqrt, math.log, math.log2, math.log10, math.exp, math.exp2, math.tanh,
    math.cos, math.sin,
)  # fmt: skip  # what numba-cuda types as float16 of a float16; its other functions are float32's
registry = Registry("float16")


class FloatModel(models.PrimitiveModel):
    """Numba's model of floats, with float16."""

    def __init__(self, manager: Any, kind: Any) -> None:
        native = {16: ir.HalfType(), 32: ir.FloatType(), 64: ir.DoubleType()}[kind.bitwidth]
        super().__init__(manager, kind, native)


def is_half(value: Any) -> bool:
    """Whether a captured value or an argument brings float16 with it."""
    if isinstance(value, np.ndarray | np.generic):
        return any(dtype == np.float16 for dtype in _parts(value.dtype))
    if isinstance(value, tuple):
        return any(is_half(v) for v in value)
    if isinstance(value, np.dtype):
        return any(dtype == np.float16 for dtype in _parts(value))
    return value is F16 or value is np.float16 or (isinstance(value, str) and value in ("float16", "f2", "e"))


def _parts(dtype: np.dtype) -> list[np.dtype]:
    """A dtype's own parts: of a record its fields', else itself."""
    if dtype.subdtype is not None:
        return _parts(dtype.subdtype[0])
    if dtype.fields is None:
        return [dtype]
    return [part for field in dtype.fields.values() for part in _parts(field[0])]


@functools.cache
def enable() -> None:
    """Teach Numba's CPU target float16; a second call does nothing."""
    default_manager._handlers[types.Float] = FloatModel

    def unbox_float(kind: Any, value: Any, c: Any) -> NativeValue:
        if kind != F16:
            return boxing.unbox_float(kind, value, c)
        wide = boxing.unbox_float(F64, value, c)
        return NativeValue(_narrowed(c.builder, wide.value), is_error=wide.is_error)

    _unboxers.functions[types.Float] = unbox_float
    context, typing = cpu_target.target_context, cpu_target.typing_context
    context.refresh()
    typing.refresh()
    context.install_registry(registry)
    for functions in ARITHMETIC.values():
        for function in functions:
            _type_first(typing, function, signature(F16, F16, F16))
    for function in (*ORDERED, operator.ne):
        _type_first(typing, function, signature(types.boolean, F16, F16))
    for unary in (operator.neg, operator.pos, abs):
        _type_first(typing, unary, signature(F16, F16))
    for rounded in ROUNDED:
        _type_exactly(typing, rounded)


def _type_first(typing: Any, function: Any, known: Any) -> None:
    """Have a function's float16 form tried before its others: these take float16 for float32."""

    class Half(ConcreteTemplate):
        key = function
        cases = [known]  # noqa: RUF012
        unsafe_casting = False

    _put_first(typing, function, Half)


def _type_exactly(typing: Any, function: Any) -> None:
    class Exactly(AbstractTemplate):
        key = function

        def generic(self, args: Any, kws: Any) -> Any:
            return signature(F16, F16) if args == (F16,) and not kws else None

    _put_first(typing, function, Exactly)


def _put_first(typing: Any, function: Any, template: Any) -> None:
    known = typing._lookup_global(function)
    if known is not None:
        typing._remove_global(function)
    typing._insert_global(function, types.Function((template, *(known.templates if known is not None else ()))))


def _narrowed(builder: Any, value: Any) -> Any:
    """float64 rounded to float16 once: by way of a float32 that is rounded to odd."""
    near = builder.fptrunc(value, ir.FloatType())
    back = builder.fpext(near, ir.DoubleType())
    magnitude = [builder.and_(builder.bitcast(v, I64), I64(2**63 - 1)) for v in (back, value)]
    bits = builder.bitcast(near, I32)
    beyond = builder.icmp_unsigned(">", *magnitude)
    towards_zero = builder.sub(bits, builder.zext(beyond, I32))
    odd = builder.or_(towards_zero, I32(1))
    is_inexact = builder.fcmp_ordered("!=", back, value)
    return builder.fptrunc(builder.bitcast(builder.select(is_inexact, odd, bits), ir.FloatType()), ir.HalfType())


@registry.lower_cast(F64, F16)
def _float64_to_half(context, builder, fromty, toty, value):
    return _narrowed(builder, value)


for _name, _functions in ARITHMETIC.items():
    for _function in _functions:

        def _arithmetic(context, builder, sig, args, name=_name):
            return getattr(builder, name)(*args)

        registry.lower(_function, F16, F16)(_arithmetic)
for _function, _sign in ORDERED.items():

    def _compared(context, builder, sig, args, sign=_sign):
        return builder.fcmp_ordered(sign, *args)

    registry.lower(_function, F16, F16)(_compared)
registry.lower(operator.ne, F16, F16)(lambda context, builder, sig, args: builder.fcmp_unordered("!=", *args))
registry.lower(operator.neg, F16)(lambda context, builder, sig, args: builder.fneg(args[0]))
registry.lower(operator.pos, F16)(lambda context, builder, sig, args: args[0])


@registry.lower(abs, F16)
def _magnitude(context, builder, sig, args):
    bits = builder.bitcast(args[0], ir.IntType(16))
    return builder.bitcast(builder.and_(bits, ir.IntType(16)(0x7FFF)), ir.HalfType())


for _rounded in ROUNDED:

    def _of_float32(context, builder, sig, args, function=_rounded):
        kind: Any = cpu_target.typing_context.resolve_value_type(function)
        called = context.get_function(kind, kind.get_call_type(cpu_target.typing_context, (F32,), {}))
        return builder.fptrunc(called(builder, [builder.fpext(args[0], ir.FloatType())]), ir.HalfType())

    registry.lower(_rounded, F16)(_of_float32)


def _of(text: str) -> Any:
    """An njit function of float16 values ``a, b, c``, given as what it returns."""
    names = sorted(set(re.findall(r"\b[abc]\b", text)))
    converted = "".join(f"    {n} = h({n})\n" for n in names)
    namespace: dict[str, Any] = {"h": F16, "f": F32, "d": F64, "math": math, "np": np}
    exec(f"def half({', '.join(names)}):\n{converted}    return {text}\n", namespace)
    return njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(namespace["half"])


def module() -> Any:
    """``cuda.fp16``, which numba-cuda imports when it compiles."""
    return importlib.import_module(f"numba.cuda.{MODULE}")


@functools.cache
def substitutes() -> dict[Any, Any]:
    """What runs in place of that module's functions."""
    texts = {
        "hadd": "a + b", "hsub": "a - b", "hmul": "a * b", "hdiv": "a / b", "hneg": "-a", "habs": "abs(a)",
        "hfma": "h(d(a) * d(b) + d(c))",
        "heq": "a == b", "hne": "a != b and a == a and b == b", "hge": "a >= b", "hgt": "a > b", "hle": "a <= b", "hlt": "a < b",
        "hmax": "a if a >= b or b != b else b", "hmin": "a if a <= b or b != b else b",
        "hsin": "h(math.sin(f(a)))", "hcos": "h(math.cos(f(a)))", "hlog": "h(math.log(f(a)))", "hlog2": "h(math.log2(f(a)))",
        "hlog10": "h(math.log10(f(a)))", "hexp": "h(math.exp(f(a)))", "hexp2": "h(math.exp2(f(a)))", "hexp10": "h(f(10) ** f(a))",
        "hsqrt": "h(math.sqrt(f(a)))", "hrsqrt": "h(1 / math.sqrt(d(a)))", "hrcp": "h(f(1) / f(a))",
        "htanh": "h(math.tanh(f(a)))",
        "hceil": "h(np.ceil(f(a)))", "hfloor": "h(np.floor(f(a)))", "htrunc": "h(np.trunc(f(a)))", "hrint": "h(np.rint(f(a)))",
    }  # fmt: skip
    return {getattr(module(), name): _of(text) for name, text in texts.items() if hasattr(module(), name)}

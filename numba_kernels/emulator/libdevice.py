"""libdevice's functions on a CPU: those that have a plain meaning, by C's library; a GPU's last bit may be another."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numba.core import types

from .words import njit

# By what they return for their arguments a, b, c; ``r`` is the type of the result, float64 or, with the suffix f, float32.
FLOATS = {
    **{n: f"math.{n}(a)" for n in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "lgamma",
        "log", "log10", "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh",
    )},
    **{n: f"math.{n}(a, b)" for n in ("atan2", "copysign", "hypot", "pow")},
    **{n: f"np.{n}(a)" for n in ("ceil", "floor", "trunc", "rint")},
    "tgamma": "math.gamma(a)", "exp10": "r(10) ** a", "cbrt": "cbrt(a)", "rsqrt": "1 / math.sqrt(float64(a))",
    "round": "np.trunc(a) + (math.copysign(1, a) if abs(a - np.trunc(a)) >= 0.5 else 0)",
    "fmod": "fmod(a, b)", "remainder": "remainder(a, b)", "nextafter": "nextafter(a, b)", "fma": "fma(a, b, c)",
    "fmax": "a if a >= b or b != b else b", "fmin": "a if a <= b or b != b else b", "fdim": "r(0) if a <= b else a - b",
}  # fmt: skip
NUMBER = re.compile(r"\br(?=[(])")  # a number of the type
FAST = ("cos", "sin", "tan", "exp", "exp10", "log", "log2", "log10", "pow")  # fast_NAMEf
OTHERS = {
    "saturatef": "float32(min(max(a, 0), 1)) if a == a else float32(0)", "fast_fdividef": "float32(a) / float32(b)",
    "sincosf": "float32(math.sin(float32(a))), float32(math.cos(float32(a)))", "sincos": "math.sin(a), math.cos(a)",
    "isnanf": "int32(math.isnan(a))", "isnand": "int32(math.isnan(a))", "isinff": "int32(math.isinf(a))",
    "isinfd": "int32(math.isinf(a))", "finitef": "int32(math.isfinite(a))", "isfinited": "int32(math.isfinite(a))",
    "abs": "abs(int32(a))", "llabs": "abs(int64(a))",
    "min": "min(int32(a), int32(b))", "max": "max(int32(a), int32(b))", "llmin": "min(int64(a), int64(b))",
    "llmax": "max(int64(a), int64(b))", "umin": "min(uint32(a), uint32(b))", "umax": "max(uint32(a), uint32(b))",
    "popc": "popc(int32(a))", "popcll": "popc(int64(a))", "clz": "clz(int32(a))", "clzll": "clz(int64(a))",
    "ffs": "ffs(int32(a))", "ffsll": "ffs(int64(a))", "brev": "brev(int32(a))", "brevll": "brev(int64(a))",
}  # fmt: skip


def substitutes(functions: dict[str, Any]) -> dict[Any, Any]:
    """What runs in place of numba-cuda's stubs. ``functions``: those of the emulator's own that the texts name."""
    from numba.cuda import libdevice

    texts = dict(OTHERS)
    for name, text in FLOATS.items():
        texts[name], texts[f"{name}f"] = _in("float64", text), _in("float32", text)
    for name in FAST:
        texts[f"fast_{name}f"] = texts[f"{name}f"]
    return {getattr(libdevice, n): _made(text, functions) for n, text in texts.items() if hasattr(libdevice, n)}


def _in(kind: str, text: str) -> str:
    """The text in a type of floats: of its arguments and of its result."""
    converted = re.sub(r"\b[abc]\b", lambda found: f"{kind}({found[0]})", text)
    return f"{kind}({re.sub(NUMBER, kind, converted)})"


def _made(text: str, functions: dict[str, Any]) -> Any:
    names = sorted(set(re.findall(r"\b[abc]\b", text)))
    kinds = {name: getattr(types, name) for name in ("float32", "float64", "int32", "int64", "uint32")}
    namespace: dict[str, Any] = {"math": math, "np": np, **kinds, **functions}
    exec(f"def libdevice({', '.join(names)}):\n    return {text}\n", namespace)
    return njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(namespace["libdevice"])

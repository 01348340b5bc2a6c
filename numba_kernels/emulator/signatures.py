"""A dispatcher's signatures, and arguments as a launch with them converts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba.core import sigutils, types
from numba.core.registry import cpu_target
from numba.core.typeconv import Conversion
from numba.np.numpy_support import as_dtype

from .pointers import Pointer


def signatures_of(function: Any, signature: Any) -> list[tuple[Any, ...]]:
    """The argument types of each signature: of ``signature`` (a string, types, or a list of such), or of a dispatcher made with
    signatures; none means any arguments."""
    if signature is None:
        if getattr(function, "_can_compile", True):
            return []
        given = list(getattr(function, "signatures", ()))
    else:
        given = signature if isinstance(signature, list) else [signature]
    return [tuple(sigutils.normalize_signature(s)[0]) for s in given]


def converted(kernel: str, signatures: list[tuple[Any, ...]], args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments in the types of the signature that fits them best, by Numba's rules of conversion: integers wrap, floats are
    rounded. An array's dtype and dimensions must be the signature's. Raises TypeError where none fits."""
    if not signatures:
        return tuple(args)
    fitting = [
        signature
        for signature in signatures
        if len(signature) == len(args) and all(_fits(kind, value) for kind, value in zip(signature, args, strict=True))
    ]
    if fitting:
        best = fitting[0] if len(fitting) == 1 else min(fitting, key=lambda signature: _cost(signature, args))
        return tuple(_as(kind, value) for kind, value in zip(best, args, strict=True))
    kinds = ", ".join(str(numba.typeof(value)) for value in args)
    known = "; ".join(f"({', '.join(map(str, s))})" for s in signatures)
    raise TypeError(f"{kernel}: No matching definition for argument types ({kinds}); it has {known}")


def _cost(signature: tuple[Any, ...], args: Sequence[Any]) -> list[int]:
    """How far the arguments' types are from a signature's: how many conversions of each kind, the worst kind first."""
    typing = cpu_target.typing_context
    found = [typing.can_convert(numba.typeof(v), k) or Conversion.unsafe for k, v in zip(signature, args, strict=True)]
    return [found.count(kind) for kind in (Conversion.unsafe, Conversion.safe, Conversion.promote)]


def _fits(kind: Any, value: Any) -> bool:
    if isinstance(kind, types.Array):
        return isinstance(value, np.ndarray) and value.ndim == kind.ndim and _holds(numba.typeof(value).dtype, kind.dtype)  # type: ignore[attr-defined]
    if isinstance(kind, types.CPointer):
        return isinstance(value, int | np.integer)
    if isinstance(kind, types.Number | types.Boolean):
        allowed = (bool, int, float, complex, np.generic) if isinstance(kind, types.Complex) else (bool, int, float, np.generic)
        return isinstance(value, allowed)
    return True


def _holds(given: Any, wanted: Any) -> bool:
    """Whether elements of one type are taken for the other's, as a launch takes them: integers of as many bits."""
    integers = isinstance(given, types.Integer) and isinstance(wanted, types.Integer)
    return given == wanted or (integers and given.bitwidth == wanted.bitwidth)


def _as(kind: Any, value: Any) -> Any:
    if isinstance(kind, types.CPointer):
        return Pointer(kind, int(value))
    if isinstance(kind, types.Array) and isinstance(kind.dtype, types.Integer):
        return value.view(as_dtype(kind.dtype))
    if isinstance(kind, types.Integer):
        return np.array(int(value) & (2**64 - 1), np.uint64).astype(as_dtype(kind))[()]
    return as_dtype(kind).type(value) if isinstance(kind, types.Number | types.Boolean) else value

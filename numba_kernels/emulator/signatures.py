"""A dispatcher's signatures, and arguments as a launch with them converts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba.core import sigutils, types
from numba.np.numpy_support import as_dtype


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
    """The arguments in the types of the signature that fits them: integers wrap, floats are rounded. An array's dtype and
    dimensions must be the signature's. Raises TypeError where none fits."""
    if not signatures:
        return tuple(args)
    for signature in signatures:
        if len(signature) == len(args) and all(_fits(kind, value) for kind, value in zip(signature, args, strict=True)):
            return tuple(_as(kind, value) for kind, value in zip(signature, args, strict=True))
    kinds = ", ".join(str(numba.typeof(value)) for value in args)
    raise TypeError(f"{kernel} has no signature for ({kinds}): it has {', '.join(map(str, signatures))}")


def _fits(kind: Any, value: Any) -> bool:
    if isinstance(kind, types.Array):
        return isinstance(value, np.ndarray) and value.ndim == kind.ndim and numba.typeof(value).dtype == kind.dtype  # type: ignore[attr-defined]
    if isinstance(kind, types.Number | types.Boolean):
        allowed = (bool, int, float, complex, np.generic) if isinstance(kind, types.Complex) else (bool, int, float, np.generic)
        return isinstance(value, allowed)
    return True


def _as(kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Integer):
        return np.array(int(value) & (2**64 - 1), np.uint64).astype(as_dtype(kind))[()]
    return as_dtype(kind).type(value) if isinstance(kind, types.Number | types.Boolean) else value

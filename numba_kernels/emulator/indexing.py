"""The full check's words about an index that lies outside its array: which index, which axis."""

from __future__ import annotations

import functools
from typing import Any

from numba import int64, types

from .environment import Env, Fault
from .words import njit, overload, poke

FAULT, FAULT_A, FAULT_B, FAULT_C = (int(w) for w in (Env.FAULT, Env.FAULT_A, Env.FAULT_B, Env.FAULT_C))
F_INDEX = int(Fault.INDEX)


class Found(Exception):
    """Raised in compiled code; the environment's words FAULT to FAULT_D say what was found."""


@njit
def _check(env, index, extent, axis):
    if not -extent <= index < extent:
        poke(env, FAULT, F_INDEX)
        poke(env, FAULT_A, index)
        poke(env, FAULT_B, extent)
        poke(env, FAULT_C, axis)
        raise Found


def index(env: Any, array: Any, position: Any) -> Any:
    """``position``, checked if it holds integers and ``array`` is one."""


@overload(index)
def _index_overload(env, array, position):
    if not isinstance(array, types.Array):
        return lambda env, array, position: position
    if isinstance(position, types.Integer):

        def of_one_axis(env, array, position):
            _check(env, int64(position), array.shape[0], 0)
            return position

        return of_one_axis
    if isinstance(position, types.BaseTuple) and all(isinstance(t, types.Integer) for t in position.types):  # type: ignore[attr-defined]
        return _of_axes(min(len(position.types), array.ndim))  # type: ignore[attr-defined]
    return lambda env, array, position: position


@functools.cache
def _of_axes(axes: int) -> Any:
    """The check of an index of several integers, which may be of several types."""
    checks = "".join(f"    check(env, int64(position[{axis}]), array.shape[{axis}], {axis})\n" for axis in range(axes))
    namespace: dict[str, Any] = {"check": _check, "int64": int64}
    exec(f"def of_axes(env, array, position):\n{checks}    return position", namespace)
    return namespace["of_axes"]


def span(env: Any, array: Any, first: Any, count: Any) -> None:
    """The check of ``count`` elements from ``array[first]``."""


@overload(span)
def _span_overload(env, array, first, count):
    if not (isinstance(array, types.Array) and array.ndim == 1):
        return lambda env, array, first, count: None

    def of_array(env, array, first, count):
        if first < 0 or first + count > array.shape[0]:
            _check(env, max(int64(first), array.shape[0]), array.shape[0], 0)

    return of_array

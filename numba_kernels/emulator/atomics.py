"""``cuda.atomic``: threads run one at a time, so reading, changing and writing are one step; what it orders is in ordering.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import int64, types

from .environment import Env
from .memory import base_address
from .ordering import synchronise
from .words import njit, overload, peek, poke

ATOMIC_NOW, PROGRESS = int(Env.ATOMIC_NOW), int(Env.PROGRESS)


@njit
def begin(env):
    """Accesses from here to ``end`` are atomic."""
    poke(env, ATOMIC_NOW, 1)


@njit
def end(env, address, changed):
    poke(env, ATOMIC_NOW, 0)
    if changed:
        poke(env, PROGRESS, peek(env, PROGRESS) + 1)
    synchronise(env, address)


@functools.cache
def address_maker(axes: int) -> Any:
    """A function (array, index) -> the element's address, for an index of several integers (0: one that is no tuple)."""
    terms = ["wrapped(index, array.shape[0]) * array.strides[0]"] if axes == 0 else []
    terms += [f"wrapped(index[{k}], array.shape[{k}]) * array.strides[{k}]" for k in range(axes)]
    namespace: dict[str, Any] = {"base_address": base_address, "wrapped": _wrapped}
    exec(f"def address(array, index):\n    return base_address(array) + {' + '.join(terms)}", namespace)
    return njit(namespace["address"])


@functools.cache
def integers_of(axes: int) -> Any:
    """A function index -> the index in integers, as numba-cuda converts it: ``uint64 % int64`` is a float in Numba."""
    made = f"({', '.join(f'int64(index[{k}])' for k in range(axes))},)" if axes else "int64(index)"
    namespace: dict[str, Any] = {"int64": int64}
    exec(f"def integers(index):\n    return {made}", namespace)
    return njit(namespace["integers"])


@njit
def _wrapped(index, extent):
    if not -extent <= index < extent:
        raise IndexError("index is out of bounds")
    return int64(index) + extent if index < 0 else int64(index)


def _element(array: Any, index: Any) -> Any:
    """The functions that give an element's address and its index in integers; None where it is none."""
    if not isinstance(array, types.Array):
        return None
    axes = len(index.types) if isinstance(index, types.BaseTuple) else 0  # type: ignore[attr-defined]
    return (address_maker(axes), integers_of(axes)) if array.ndim == max(axes, 1) else None


def _operation(change: Callable[..., Any]) -> Any:
    """A function (env, array, index, value) -> the old element, in whose place ``change(old, value)`` is put."""
    changed = njit(change)

    def operation(env: Any, array: Any, index: Any, value: Any) -> Any:
        """Replaced by the overload below."""

    @overload(operation)
    def made(env, array, index, value):
        element = _element(array, index)
        if element is None:
            return None
        (address, integers), dtype = element, array.dtype

        def run(env, array, index, value):
            place = integers(index)
            at = address(array, place)
            begin(env)
            old = array[place]
            new = dtype(changed(old, dtype(value)))
            array[place] = new
            end(env, at, new != old)
            return old

        return run

    return operation


def _max(old, value):
    return value if value > old else old  # a NaN neither enters nor leaves, as in numba-cuda's loop of compare-and-swap


def _min(old, value):
    return value if value < old else old


def _nanmax(old, value):
    return value if value > old or old != old else old


def _nanmin(old, value):
    return value if value < old or old != old else old


OPERATIONS: dict[str, Any] = {
    "add": _operation(lambda old, value: old + value),
    "sub": _operation(lambda old, value: old - value),
    "and_": _operation(lambda old, value: old & value),
    "or_": _operation(lambda old, value: old | value),
    "xor": _operation(lambda old, value: old ^ value),
    "inc": _operation(lambda old, value: 0 if old >= value else old + 1),
    "dec": _operation(lambda old, value: value if old == 0 or old > value else old - 1),
    "exch": _operation(lambda old, value: value),
    "max": _operation(_max),
    "min": _operation(_min),
    "nanmax": _operation(_nanmax),
    "nanmin": _operation(_nanmin),
}


def cas(env: Any, array: Any, index: Any, old: Any, value: Any) -> Any:
    """The element, which becomes ``value`` if it was ``old``."""


@overload(cas)
def _cas_overload(env, array, index, old, value):
    element = _element(array, index)
    if element is None:
        return None
    (address, integers), dtype = element, array.dtype

    def run(env, array, index, old, value):
        place = integers(index)
        at = address(array, place)
        begin(env)
        found = array[place]
        hit = found == dtype(old)
        if hit:
            array[place] = dtype(value)
        end(env, at, hit)
        return found

    return run


def compare_and_swap(env: Any, array: Any, old: Any, value: Any) -> Any:
    """The same for an array's first element."""


@overload(compare_and_swap)
def _compare_and_swap_overload(env, array, old, value):
    return lambda env, array, old, value: cas(env, array, 0, old, value)


OPERATIONS.update(cas=cas, compare_and_swap=compare_and_swap)

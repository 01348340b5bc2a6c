"""The record of a case, plain data from a file or a caller: what each of its keys may hold."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from difftest.options import LARGEST_SEED, MOST, WIDEST

MOST_AXES = 31  # before the row: NumPy below 2 has 32 in all, torch 64


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a key may have: in words, and as a test."""

    allowed: str
    holds: Callable[[Any], bool]


def _whole(least: int, most: int) -> Kind:
    return Kind(f"a whole number from {least} to {most}", lambda v: type(v) is int and least <= v <= most)


def _list(each: Kind, most: int) -> Kind:
    return Kind(
        f"a list of at most {most}, each of it {each.allowed}",
        lambda v: isinstance(v, list | tuple) and len(v) <= most and all(map(each.holds, v)),
    )


def _either(*kinds: Kind) -> Kind:
    return Kind(", or ".join(kind.allowed for kind in kinds), lambda v: any(kind.holds(v) for kind in kinds))


def _by_name(each: Kind) -> Kind:
    """An object whose values are of a kind; its keys are names."""
    return Kind(
        f"an object, each of it {each.allowed}",
        lambda v: isinstance(v, Mapping) and all(isinstance(name, str) and each.holds(of) for name, of in v.items()),
    )


_TEXT = Kind("text", lambda v: isinstance(v, str))
_NULL = Kind("null", lambda v: v is None)
_TRUTH = Kind("true or false", lambda v: type(v) is bool)
_STABILITY = Kind(
    "an object whose batch_invariant is true or false, or null",
    lambda v: v is None or (isinstance(v, Mapping) and type(v.get("batch_invariant", False)) is bool),
)
_OBJECT = Kind("an object", lambda v: isinstance(v, Mapping))
_NUMBER = Kind("a finite number from 0 up", lambda v: type(v) in (int, float) and 0 <= v < float("inf"))
_ELEMENTS = _whole(0, MOST)

KINDS: Mapping[str, Kind] = {
    "op": _TEXT,
    "dtype": _TEXT,
    "lead": _list(_ELEMENTS, MOST_AXES),
    "width": _whole(1, WIDEST),
    "regime": _TEXT,
    "seed": _whole(0, LARGEST_SEED),
    "contract": _TEXT,
    "eps": _NUMBER,
    "weights": _TEXT,
    "weight_dtype": _either(_TEXT, _NULL),
    "padding": _either(_ELEMENTS, _by_name(_ELEMENTS)),  # one number: in the first schema
    "misaligned": _list(_TEXT, MOST_AXES),
    "out": _TEXT,
    "out_given": _TRUTH,  # in the first schema
    "device": _TEXT,
    "origin": _TEXT,
    "given": _OBJECT,
    # what a result says beside its case, and what is read of it to run the case again
    "candidate": _TEXT,
    "against": _TEXT,
    "stability": _STABILITY,
}


def check(record: Any) -> None:
    """ValueError, one line, where a record is no object, or a key that it has holds something else than what is allowed."""
    if not isinstance(record, Mapping):
        raise ValueError(f"{_short(record)} is no case; allowed: an object with the keys of one")
    for name, kind in KINDS.items():
        if name in record and not kind.holds(record[name]):
            raise ValueError(f"{name} {_short(record[name])} is not allowed; allowed: {kind.allowed}")


def _short(value: Any) -> str:
    """A value in a few words, however large it is or deep."""
    try:
        return reprlib.repr(value)
    except ValueError:  # a whole number of more digits than Python writes out
        return "a number of thousands of digits"

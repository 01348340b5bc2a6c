"""How a target is run: a few examples, the same each time, or, with FUZZ_SECONDS, others for so long, shared by all targets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
TARGETS = 11  # that share them
FIRST = int(os.environ.get("FUZZ_SEED", "0"))
USUAL = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def fuzzed(*strategies: st.SearchStrategy[Any], few: int = 30) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Makes a test of a check of made-up values."""

    def test_of(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            if not SECONDS:
                settings(max_examples=few, derandomize=True, **USUAL)(given(*strategies)(check))()
                return
            end, turn = time.monotonic() + SECONDS / TARGETS, FIRST
            while time.monotonic() < end:
                turn += 1
                seed(turn)(settings(max_examples=100, **USUAL)(given(*strategies)(check)))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return test_of


NUMBERS = (
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0, 1, -1, 2**30, 2**62, 2**63, 10**30])
)
TEXTS = st.text(max_size=8) | st.sampled_from(["", "\ud800", "rmsnorm", "bf16", "torch", "normal", "cpu", "cuda:9", "a\0b", "²"])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=6,
)


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """A document of JSON in which one to three values, at any depth, are others, gone or there twice."""
    found = _copy(document)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(found))
        if not places:
            break
        owner, key = draw(st.sampled_from(places))
        if draw(st.integers(0, 4)) == 0:
            del owner[key]
        else:
            owner[key] = draw(JSON)
    return found


@st.composite
def broken(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of a file cut short, or with some of them changed."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.integers(0, 3))
        if how == 0:
            del data[at:]
        elif how == 1:
            data[at:at] = draw(st.binary(max_size=8))
        else:
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
    return bytes(data)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(items):
        yield value, key
        yield from _places(each)

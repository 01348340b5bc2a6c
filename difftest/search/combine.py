"""Hypothesis over the dimensions of a call: values of all of them at once, where an array of pairs combines two."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from difftest.cases.case import Case
from difftest.cases.dimensions import dimensions, exclude
from difftest.cases.generate import realised
from difftest.cases.request import Request

AT_ONCE = 50  # examples of one run of Hypothesis, which has no way to end early: those past the time are not called
MOST_ELEMENTS = 2**17  # of a case; many small cases meet more than a large one
LARGEST_SEED = 2**32 - 1


class Combinations:
    """The cases of one operator and dtype that Hypothesis draws, each run from where its seeds have come to."""

    def __init__(self, request: Request, op: str, dtype: str) -> None:
        self._name = f"{request.seed}/{op}/{dtype}/combine"
        self._cases = cases(request, op, dtype)
        self._runs = 0

    def run(self, fails: Callable[[Case], bool], until: float) -> int:
        """Draws cases until one fails, or until then (of `time.monotonic`). How many were tried."""
        tried, found = 0, False

        def attempt(case: Case) -> None:
            nonlocal tried, found
            if not found and time.monotonic() < until:
                tried += 1
                found = fails(case)

        while not found and time.monotonic() < until:
            self._runs += 1
            drawn = hypothesis.given(self._cases)(attempt)
            _settings(hypothesis.seed(zlib.crc32(f"{self._name}/{self._runs}".encode()))(drawn))()
        return tried


@st.composite
def cases(draw: st.DrawFn, request: Request, op: str, dtype: str) -> Case:
    """A value of each dimension in turn, of those that the ones before it leave; any width; any seed."""
    values: dict[str, Any] = {}
    for each in dimensions(request, op, dtype):
        left = [v for v in each.values if not any(exclude(taken, (each.name, v)) for taken in values.items())]
        hypothesis.assume(left)
        values[each.name] = draw(st.sampled_from(left))
    made = realised(request, op, dtype, values, 0)
    widest = max(1, min(request.most, MOST_ELEMENTS // max(1, made.rows)))
    width = draw(st.none() | st.integers(1, widest))
    return replace(made, width=width or made.width, seed=draw(st.integers(0, LARGEST_SEED)), origin="search")


_settings = hypothesis.settings(
    max_examples=AT_ONCE,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # failures are shrunk by the order of this package
    suppress_health_check=list(HealthCheck),
)

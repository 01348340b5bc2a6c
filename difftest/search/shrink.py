"""Shrinking: from an example that fails down the order of `difftest.search.order` to one that no pass makes simpler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from difftest.search import order
from difftest.search.example import Example
from difftest.search.passes import Elements, Layout, Numbers, Pass, Rows, Width

# Values come ahead of the width, so that it is known which columns matter; what they left goes again behind it.
PASSES: Sequence[Pass] = (Rows(), Elements(), Width(), Layout(), Elements(), Numbers())

TOGETHER = 16  # examples of which the suspects are asked for at once


class _OutOfTime(Exception):
    """The deadline has passed; what was found so far stands."""


@dataclass(slots=True)
class Shrinker:
    """A descent. `fails`: whether an example fails for the same kind of reason. `deadline`: of `time.monotonic`.

    `suspects`: the places of those of so many examples that may fail, where that costs less than to ask for each.
    """

    current: Example
    fails: Callable[[Example], bool]
    deadline: float
    suspects: Callable[[Sequence[Example]], list[int]] | None = None
    calls: int = 0

    def consider(self, example: Example) -> bool:
        """Whether the example is simpler than the current one and still fails; it is then the current one."""
        if not order.simpler(example, self.current):
            return False
        if time.monotonic() >= self.deadline:
            raise _OutOfTime
        self.calls += 1
        if not self.fails(example):
            return False
        self.current = example
        return True

    def consider_in_turn(self, examples: Iterable[Example]) -> int | None:
        """The place of the first example that is simpler than the current one and still fails, which is then the current one."""
        numbered = enumerate(examples)
        while some := list(islice(numbered, TOGETHER if self.suspects else 1)):
            if time.monotonic() >= self.deadline:
                raise _OutOfTime
            suspected = some
            if self.suspects:
                self.calls += len(some)
                suspected = [some[k] for k in self.suspects([example for _, example in some])]
            for place, example in suspected:
                if self.consider(example):
                    return place
        return None


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest example found, in so many calls. `whole`: every pass was through, none made it simpler."""

    example: Example
    calls: int
    whole: bool


def shrink(
    example: Example,
    fails: Callable[[Example], bool],
    deadline: float,
    suspects: Callable[[Sequence[Example]], list[int]] | None = None,
) -> Shrunk:
    """The example made as simple as the passes can make it while `fails` holds; itself where nothing simpler fails."""
    shrinker = Shrinker(example, fails, deadline, suspects)
    through: dict[int, Example] = {}  # the pass's place -> the example that it could not make simpler
    try:
        while any(through.get(place) is not shrinker.current for place in range(len(PASSES))):
            for place, each in enumerate(PASSES):
                before = shrinker.current
                if through.get(place) is not before:
                    each.shrink(shrinker)
                if shrinker.current is before:
                    through[place] = before
        return Shrunk(shrinker.current, shrinker.calls, whole=True)
    except _OutOfTime:
        return Shrunk(shrinker.current, shrinker.calls, whole=False)

"""A covering array: few assignments of values to dimensions in which every combination of `strength` values occurs.

Greedy, one assignment at a time, as AETG does it: it starts from a combination that is not yet covered and gives each further
dimension the value that covers most. Unlike allpairspy it starts from what cases beside it cover, takes classes (a width may be
of several) and values that hide others, and counts by the same table as the report.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from difftest.cases.case import Case
from difftest.cases.dimensions import HIDING, Dimension, exclude, hiding

PLAINEST = ("rows", "width")  # of values that cover as much the plainest, where an odd one costs time

Combination = tuple[int, ...]


class Coverage:
    """Which combinations of `strength` values of a model's dimensions are required, and which of them no case has covered yet.

    A value is known by its number, over all dimensions in their order: `values` has its dimension and the value itself. `left` is
    indexed by `strength` numbers in any order. `hidden_throughout`: dimensions all of whose values hide.
    """

    def __init__(self, model: Sequence[Dimension], strength: int) -> None:
        self.model, self.strength = model, min(strength, len(model))
        self.values = [(dimension.name, value) for dimension in model for value in dimension.values]
        starts = np.cumsum([0, *(len(dimension.values) for dimension in model)])
        self.numbers = [range(starts[i], starts[i + 1]) for i in range(len(model))]  # of each dimension
        count = len(self.values)
        self.clash = np.zeros((count, count), dtype=bool)
        for a, b in combinations(range(count), 2):
            self.clash[a, b] = self.clash[b, a] = exclude(self.values[a], self.values[b])
        self._number = [dict(zip(each.values, numbers, strict=True)) for each, numbers in zip(model, self.numbers, strict=True)]
        self.hidden_throughout = {d.name for d in model if all((d.name, value) in HIDING for value in d.values)}
        self.left = np.zeros((count,) * self.strength, dtype=bool)
        self.required = [each for each in self._products(self.numbers) if not self._clashes(each)]
        places = np.array(self.required, dtype=np.intp).reshape(-1, self.strength)
        for order in permutations(range(self.strength)):
            self.left[tuple(places[:, order].T)] = True

    def mark(self, case: Case, target: Combination | None = None) -> bool:
        """Takes what a case covers as covered, unless it does not cover the target. Returns whether it does.

        Of a case whose values hide others only combinations that include all that hide.
        """
        has = {
            dimension.name: [number[value] for value in dimension.of(case) if value in number]
            for dimension, number in zip(self.model, self._number, strict=True)
        }
        every = [number for own in has.values() for number in own]
        hiders = [has[name] for name in hiding(case) - self.hidden_throughout if name in has]
        if target is not None and not (set(target).issubset(every) and all(set(own) & set(target) for own in hiders)):
            return False
        for places in permutations(range(self.strength), len(hiders)):
            numbers = [every] * self.strength
            for place, own in zip(places, hiders, strict=True):
                numbers[place] = own
            self.left[np.ix_(*numbers)] = False  # with what can't be, two values of a dimension, which is not left anyway
        return True

    @property
    def covered(self) -> int:
        """How many of the required combinations are covered."""
        return sum(not self.left[each] for each in self.required)

    def _products(self, numbers: Sequence[range]) -> Iterator[Combination]:
        for chosen in combinations(numbers, self.strength):
            yield from product(*chosen)

    def _clashes(self, combination: Combination) -> bool:
        return any(self.clash[a, b] for a, b in combinations(combination, 2))

    def gains(self, number: int, chosen: Sequence[int]) -> np.ndarray:
        """(values,): how many combinations of each value with a number, and others of those chosen before it, are left."""
        if self.strength == 1:
            return np.zeros(len(self.values), dtype=int)
        if self.strength == 2:
            return self.left[number]
        return self.left[number, np.array(chosen, dtype=np.intp)].sum(0)


def cover(
    coverage: Coverage, seed: str, beside: Iterable[Case], realise: Callable[[dict[str, Any], int], Case]
) -> Iterator[Case]:
    """Cases that cover, with those `beside` them, every required combination. The same seed gives the same cases.

    `realise` makes a case of an assignment and its number. Raises AssertionError where its case does not cover what it is for.
    Marks every case.
    """
    draw = random.Random(seed)
    wanted = list(coverage.required)
    draw.shuffle(wanted)
    for case in beside:
        coverage.mark(case)
    number = 0
    for target in wanted:
        if not coverage.left[target]:
            continue
        case = realise(_completed(target, coverage, draw), number)
        if not coverage.mark(case, target):  # another value hides it
            case = realise(_completed(target, coverage, draw, plain=True), number)
            covers = coverage.mark(case, target)
            assert covers, f"{case} does not cover {[coverage.values[each] for each in target]}"
        yield case
        number += 1


def _completed(target: Combination, coverage: Coverage, draw: random.Random, plain: bool = False) -> dict[str, Any]:
    """An assignment with the target's values and one for every other dimension, in random order: one that covers most.

    Of those that cover as much the plainest, in the dimensions that cost time. `plain`: in those that may hide others too.
    """
    chosen: list[int] = []
    gains = coverage.left.astype(int) if coverage.strength == 1 else np.zeros(len(coverage.values), dtype=int)
    barred = np.zeros(len(coverage.values), dtype=bool)

    def choose(number: int) -> None:
        nonlocal gains, barred
        gains = gains + coverage.gains(number, chosen)
        barred = barred | coverage.clash[number]
        chosen.append(number)

    for number in target:
        choose(number)
    plainest = {*PLAINEST, *(name for name, _ in HIDING if plain)}
    order = [i for i, numbers in enumerate(coverage.numbers) if not any(each in numbers for each in target)]
    draw.shuffle(order)
    for index in order:
        numbers, name = coverage.numbers[index], coverage.model[index].name
        values = [v for v, out in zip(numbers, barred[numbers.start : numbers.stop].tolist(), strict=True) if not out]
        values = [v for v in values if coverage.values[v] not in HIDING] or values
        gained = dict(zip(numbers, gains[numbers.start : numbers.stop].tolist(), strict=True))
        most = max(gained[v] for v in values)
        best = [v for v in values if gained[v] == most]
        if plain and name in plainest:
            best = values[:1]
        choose(best[0] if name in plainest else draw.choice(best))
    return dict(coverage.values[each] for each in chosen)

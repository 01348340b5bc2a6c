"""What a run's cases covered of the dimensions of a call, what they did not and which option does, and how often was called."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from difftest.cases.array import Coverage
from difftest.cases.dimensions import dimensions
from difftest.cases.generate import FAR_APART
from difftest.cases.request import Request
from difftest.run.check import Result
from difftest.wording import counted

CONFIDENCE = 0.95
SETS = {2: "pairs", 3: "triples"}


@dataclass(frozen=True, slots=True)
class Covered:
    """`covered` of the `required` combinations of `strength` values, by operator and dtype; `missing`: one that is not, in words.

    `left_out`: what no case of the request asks, with the option that does. `calls`: the fewest that an operator got.
    """

    strength: int
    groups: tuple[tuple[str, str, int, int], ...]  # operator, dtype, covered, required
    missing: str
    left_out: tuple[str, ...]
    calls: int

    @property
    def covered(self) -> int:
        """Over all operators and dtypes."""
        return sum(group[2] for group in self.groups)

    @property
    def required(self) -> int:
        """Over all operators and dtypes."""
        return sum(group[3] for group in self.groups)

    def lines(self) -> list[str]:
        """What a person reads of it."""
        what, of = SETS[self.strength], f"{counted(len(self.groups), 'group')} of an operator and a dtype"
        found = [f"covered: {self.covered:,} of {self.required:,} {what} of values of different dimensions, in {of}"]
        if self.missing:
            found.append(f"  not covered: {self.required - self.covered:,} {what}, one of them {self.missing}")
        found += [f"  not covered: {each}" for each in self.left_out]
        if self.calls:
            rare = max(1, math.floor(1 / (1 - (1 - CONFIDENCE) ** (1 / self.calls))))
            found.append(
                f"  {self.calls:,} calls of each operator or more: a fault that shows in one call of {rare:,} is among them with "
                f"probability {CONFIDENCE:.0%}, a rarer one with less; more calls: --cases {10 * self.calls}"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "strength": self.strength,
            "covered": self.covered,
            "required": self.required,
            "groups": [dict(zip(("op", "dtype", "covered", "required"), group, strict=True)) for group in self.groups],
            "not_covered": list(self.left_out),
            "calls": self.calls,
        }


def coverage(request: Request, results: Iterable[Result]) -> Covered:
    """Counts what the cases that were run cover: pairs, or triples where they were asked for."""
    ran: dict[tuple[str, str], dict[Any, Result]] = {}
    for result in results:
        ran.setdefault((result.case.op, result.case.dtype), {})[result.case] = result
    groups: list[tuple[str, str, int, int]] = []
    left_out: dict[str, None] = {}
    missing = ""
    strength = max(2, request.strength)
    for op in request.contracts:
        for dtype in request.dtypes:
            model = dimensions(request, op, dtype)
            found = Coverage(model, strength)
            for case in ran.get((op, dtype), ()):
                found.mark(case)
            groups.append((op, dtype, found.covered, len(found.required)))
            missing = missing or _in_words(found)
            left_out |= dict.fromkeys(f"{each.name}: {each.left_out}" for each in model if each.left_out)
    if not any(case.origin == FAR_APART for cases in ran.values() for case in cases):
        left_out[f"rows 2^31 elements apart: {'--rows 3 --widths 111' if request.device == 'cpu' else '--device cpu'}"] = None
    if request.strength < 2:
        left_out["every pair of values: --strength 2"] = None
    elif request.strength < 3:
        left_out["every combination of three values: --strength 3"] = None
    calls: dict[str, int] = dict.fromkeys(request.contracts, 0)
    for (op, _), cases in ran.items():
        calls[op] += sum(result.calls for result in cases.values())
    return Covered(strength, tuple(groups), missing, tuple(left_out), min(calls.values(), default=0))


def _in_words(found: Coverage) -> str:
    """The first combination that is not covered; nothing where all are."""
    for each in found.required:
        if found.left[each]:
            return " with ".join(f"{name} {value}" for name, value in (found.values[number] for number in each))
    return ""

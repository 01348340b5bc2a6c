"""A result's worst elements in words: both values, where both stand to the truth, and which of the two is the outlier."""

from __future__ import annotations

from difftest.run.check import Result
from difftest.verdict.compare import Comparison
from difftest.verdict.truth import OUTLIER_ULP
from difftest.verdict.worst import Element, Truth

MOST_REASONS = 4


def outlier(result: Result, comparison: Comparison) -> bool:
    """Whether the reference alone is off at the worst element: far from the truth where a candidate that conforms is near.

    In 16 bits another contract explains that; in fp32 all are one.
    """
    truth = comparison.worst.truth if comparison.worst else None
    if truth is None or result.differs or (result.followed and result.case.format.itemsize < 4):
        return False
    return _size(truth.actual) <= OUTLIER_ULP < _size(truth.expected)


def _size(off: int | str) -> float:
    """A distance's magnitude; infinite for another class."""
    return float("inf") if isinstance(off, str) else abs(off)


def headline(result: Result) -> str:
    """What the worst case shows: ``Worst case``, or who is far from whom."""
    if result.differs:
        return "Worst case"
    if any(outlier(result, comparison) for comparison in result.outputs.values()):
        return f"Farthest from {result.against}, which is the outlier"
    if result.followed:
        return f"Farthest from {result.against}, which follows {result.followed}"
    return f"Farthest from {result.against}"


def values(name: str, element: Element, against: str) -> str:
    """``output[1, 3569]: candidate 1.789e-38 (0x00c2cb9b), torch 1.78909e-38 (0x00c2d08e): -1267 ULP``."""
    return f"{name}{list(element.index)}: candidate {element.actual}, {against} {element.expected}: {element.apart}"


def standing(truth: Truth, against: str) -> str:
    """``correctly rounded 1.789e-38 (0x00c2ce0a): candidate -623 ULP from it, torch +644 ULP``."""
    return f"correctly rounded {truth.right}: candidate {_off(truth.actual, ' from it')}, {against} {_off(truth.expected)}"


def origin(element: Element) -> str:
    """``from gate -13.4949656 (0xc157eb61), up -158.353058 (0xc31e5a62)``."""
    return "from " + ", ".join(f"{key} {value}" for key, value in element.inputs.items())


def lines(result: Result) -> list[str]:
    """The worst element of each output."""
    found = []
    for name, comparison in result.outputs.items():
        if comparison.worst:
            first, *others = element_lines(name, comparison.worst, result.against)
            found += [first, *(f"  {line}" for line in others)]
    return found


def element_lines(name: str, element: Element, against: str) -> list[str]:
    """Both values; where they stand to the truth, if that is known; the inputs."""
    truth = [standing(element.truth, against)] if element.truth else []
    return [values(name, element, against), *truth, origin(element)]


def _off(off: int | str, what: str = "") -> str:
    return off if isinstance(off, str) else f"{off:+,} ULP{what}" if off else f"0 ULP{what}"

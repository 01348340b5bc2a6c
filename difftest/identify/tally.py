"""What observed outputs say about hypotheses: counts for and against each, and the first element against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch

from difftest.identify.hypotheses import Allowed, Hypothesis
from reference.formats import hex_bits

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Observation:
    """One call: its inputs as they were before it, and its outputs."""

    inputs: Tensors
    outputs: Tensors

    @property
    def width(self) -> int:
        """The width of an output row."""
        return self.outputs["output"].shape[-1]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An element that a hypothesis does not allow: where, what was found and what is allowed, as values with bits."""

    width: int
    output: str
    index: tuple[int, ...]
    found: str
    allowed: str

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        return f"{self.output}[{place}] at width {self.width} is {self.found}, allowed: {self.allowed}"


@dataclass(slots=True)
class Tally:
    """One hypothesis over some observations.

    `contradicting`: elements that it does not allow, of `elements`. Among the decisive ones, where two of the hypotheses
    held side by side allow no common value: `agree` and `against`. `first`: the first element not allowed.
    """

    hypothesis: Hypothesis
    elements: int = 0
    contradicting: int = 0
    agree: int = 0
    against: int = 0
    first: Contradiction | None = None

    @property
    def fits(self) -> bool:
        """Whether nothing contradicts it."""
        return self.elements > 0 and not self.contradicting


def tally(hypotheses: Sequence[Hypothesis], observations: Sequence[Observation]) -> list[Tally]:
    """The counts of each hypothesis, all of them held against the same elements."""
    found = [Tally(hypothesis) for hypothesis in hypotheses]
    for seen in observations:
        allowed = [hypothesis.allows(seen.inputs) for hypothesis in hypotheses]
        for name, values in seen.outputs.items():
            sides = [each[name] for each in allowed]
            decisive = torch.zeros_like(values, dtype=torch.bool)
            for a, b in combinations(sides, 2):
                decisive |= a.apart_from(b)
            for each, side in zip(found, sides, strict=True):
                _count(each, name, values, side, decisive, seen.width)
    return found


def nearest(tallies: Sequence[Tally]) -> Tally:
    """The one that fewest elements contradict; the earlier of equals."""
    return min(tallies, key=lambda each: each.contradicting)


def _count(into: Tally, name: str, values: torch.Tensor, side: Allowed, decisive: torch.Tensor, width: int) -> None:
    inside = side.contains(values)
    wrong = ~inside
    into.elements += int((side.judged | side.nan).sum())
    into.contradicting += int(wrong.sum())
    into.agree += int((inside & decisive).sum())
    into.against += int((wrong & decisive).sum())
    if into.first is None and bool(wrong.any()):
        flat = int(wrong.flatten().to(torch.uint8).argmax())
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), values.shape))
        low, high = side.lowest[index], side.highest[index]
        allowed = shown(low) if bool(low == high) else "NaN" if bool(low.isnan()) else f"{shown(low)} to {shown(high)}"
        into.first = Contradiction(width, name, index, shown(values[index]), allowed)


def shown(value: torch.Tensor) -> str:
    """An element as a value and its bits."""
    return f"{value.item():.9g} ({hex_bits(value)})"

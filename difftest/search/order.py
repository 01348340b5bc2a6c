"""What "simpler" means: the one order on examples that shrinking goes down.

Fewer rows come first, then a smaller width, then a plainer layout, then plainer values, then plainer numbers and formats. Of two
examples the one with the smaller key is the simpler, whatever stands behind the first place in which they differ.
"""

from __future__ import annotations

import torch

from difftest.cases.case import OUT_GIVEN, OUT_INPUT, OUT_NONE
from difftest.search.example import Example
from reference.contracts import contract
from reference.formats import of

OUTS = (OUT_NONE, OUT_GIVEN, OUT_INPUT)

# The parts of an element's rank, each beyond all that the parts before it can add up to: |exponent| is at most 149, a
# significand has at most 24 bits.
_A_BIT, _NEGATIVE, _NOT_FINITE = 1 << 8, 1 << 13, 1 << 14


def simpler(one: Example, than: Example) -> bool:
    """Whether one example comes before another in the order."""
    for part in PARTS:
        mine, other = part(one), part(than)
        if mine != other:
            return mine < other
    return False


def rows(example: Example) -> tuple[int, ...]:
    """How many rows."""
    return (example.case.rows,)


def width(example: Example) -> tuple[int, ...]:
    """The width of an output row."""
    return (example.case.width,)


def layout(example: Example) -> tuple[int, ...]:
    """How far from one aligned, contiguous matrix: axes, what is handed over as `out`, misaligned and padded buffers."""
    case = example.case
    return (
        abs(len(case.lead) - 1),
        OUTS.index(case.out),
        len(case.misaligned),
        len(case.padding),
        sum(elements for _, elements in case.padding),
    )


def values(example: Example) -> tuple[int, ...]:
    """How many elements are not the plainest, and their ranks added up."""
    ranks = [rank(tensor, example.plain_value(role)) for role, tensor in example.values.items()]
    return sum(int((each > 0).sum()) for each in ranks), sum(int(each.sum()) for each in ranks)


def numbers(example: Example) -> tuple[int, ...]:
    """How many of the call's parameters are not the usual ones, and whether the weight has a format of its own."""
    case, usual = example.case, contract(example.case.operator)
    return sum(case.contract.value(p.name) != usual.value(p.name) for p in case.operator.parameters), int(bool(case.weight_dtype))


PARTS = (rows, width, layout, values, numbers)


def rank(tensor: torch.Tensor, plain: float) -> torch.Tensor:
    """Each element's rank, int64: 0 for the plain value; then finite before Inf and NaN, positive before negative, short
    significands before long ones, and a power of two near 1 before one that is far from it. Zero counts as 2."""
    wide = tensor.double()
    finite = torch.isfinite(wide)
    parts = torch.frexp(torch.where(finite & (wide != 0), wide, 1.0))
    significand = (parts.mantissa.abs() * (1 << (of(tensor.dtype).fraction_bits + 1))).long()
    lowest_bit = (significand & -significand).double()
    length = (torch.log2(significand.double()).floor() - torch.log2(lowest_bit)).long()  # 0 for a power of two
    found = 1 + (parts.exponent.long() - 1).abs() + _A_BIT * length + _NEGATIVE * torch.signbit(wide).long()
    found = torch.where(wide == 0, 2 + _NEGATIVE * torch.signbit(wide).long(), found)
    found = torch.where(finite, found, _NOT_FINITE + torch.isnan(wide).long())
    return torch.where(wide == plain, 0, found)

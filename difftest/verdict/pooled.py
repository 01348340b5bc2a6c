"""Are the rows' rstd errors off to one side on average? Over a case's rows, and over those of many cases together.

A row whose results lie next to ties tells its rstd to a step or two of fp32, as the middle of its rstd interval. What rounding
does to each row by chance has no part in their mean, so that a smaller bias shows there than in any row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from difftest.verdict import orders
from difftest.verdict.bias import DISTINCT
from difftest.verdict.rstd_interval import RstdInterval, rstd_interval
from reference.exact.bounds import U32
from reference.exact.terms import NormTerms

STATISTIC = "leaning"
# What honest kernels' errors come to on average, in u = 2^-24: lanes of up to 128 squares 1.6 u, for those of 16-bit numbers
# round alike again and again; a root refined by a Newton step 0.4 u; a rounded 1 / width 0.5 u.
BIAS = 2.5
BIAS_OF_AN_ORDER = 0.9  # the same where the sum is known: what root and reciprocal leave
SHARP = 12.0  # the widest rstd interval, in u, that tells a row's rstd: product errors are 4 u of it
WIDE = 1024  # the narrowest rows: fewer squares make no error that is worth a look
FEWEST = 24  # rows: below that Student's t says nothing at such a level
LEAST_DEVIATION = 0.5  # in u, whatever the sample says
FALSE_ALARM = 1e-8  # of one mean, of either sign
OF_AN_ORDER = 1e-4  # of one that a named order is to explain, as in `bias`
_Z, _Z_OF_AN_ORDER = 5.73, 3.89  # the normal deviates that are exceeded with half that probability at either end


@dataclass(frozen=True, slots=True)
class Sum:
    """Rows' rstd errors, in u: how many, their sum, the sum of their squares."""

    rows: int = 0
    total: float = 0.0
    squares: float = 0.0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.rows + other.rows, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> float:
        """The mean error; 0 of no rows."""
        return self.total / self.rows if self.rows else 0.0

    def most(self, order: str = "") -> float:
        """The largest mean, in magnitude, that the bias and chance explain: Student's t. Infinite of a few rows.

        `order`: that the sums were in; "" for any that the rule allows.
        """
        if self.rows < FEWEST:
            return math.inf
        variance = max(0.0, self.squares - self.rows * self.mean**2) / (self.rows - 1)
        bias, z = (BIAS_OF_AN_ORDER, _Z_OF_AN_ORDER) if order else (BIAS, _Z)
        return bias + _student(z, self.rows - 1) * max(LEAST_DEVIATION, math.sqrt(variance)) / math.sqrt(self.rows)

    def leans(self, order: str = "") -> bool:
        """Whether the mean is beyond that."""
        return abs(self.mean) > self.most(order)


Sums = Mapping[str, Sum]
"""A case's sum by the order of its squares: "" as if it were exact, and where that is beyond `BIAS` each named order."""


def sums(terms: NormTerms, rstd: RstdInterval, candidate: torch.Tensor) -> dict[str, Sum]:
    """A case's sums. `candidate`: (rows, width), what `rstd` was found of."""
    found = {"": of_case(terms, rstd)}
    if abs(found[""].mean) > BIAS:
        right = terms.mean_square * terms.hidden.shape[-1]
        for order in orders.named():
            total = order.total(terms.hidden)
            other = terms.of_sum(torch.where(torch.isfinite(total) & (total > 0), total, right), orders.TREE)
            under = of_case(other, rstd_interval(other, candidate))
            if under.rows >= found[""].rows:  # else there are rows that it does not explain
                found[order.name] = under
    return found


def plain(found: Sums) -> dict[str, dict[str, float]]:
    """As a verdict's statistics hold them, which a journal keeps."""
    return {order: asdict(each) for order, each in found.items()}


def of_plain(found: Mapping[str, Mapping[str, Any]]) -> Sums:
    """The sums that `plain` made this of."""
    return {order: Sum(**each) for order, each in found.items()}


def of_case(terms: NormTerms, rstd: RstdInterval) -> Sum:
    """Of the rows that tell their rstd: generic ones, wide, one for each mantissa of the mean square, of many magnitudes."""
    apart = rstd.highest - rstd.lowest
    usable = rstd.generic & (apart >= 0) & (apart <= SHARP * U32) & (terms.shifted[:, 0] > 2.0**-100)
    if terms.hidden.shape[-1] < WIDE or not bool(usable.any()):
        return Sum()
    rows = torch.nonzero(usable).squeeze(-1)
    mantissas, order = torch.frexp(terms.mean_square[rows, 0]).mantissa.sort()
    fresh = torch.ones_like(order, dtype=torch.bool)
    fresh[1:] = mantissas[1:] != mantissas[:-1]
    rows = rows[order[fresh]]
    if len(terms.hidden[rows[0]].abs().unique()) < DISTINCT:  # a pattern that repeats rounds the same way again and again
        return Sum()
    errors = (rstd.highest[rows] + rstd.lowest[rows]) / (2 * U32)
    return Sum(len(rows), float(errors.sum()), float(errors.square().sum()))


def pooled(cases: Iterable[Sums]) -> Sum | None:
    """The sum of several cases together, where it leans under every order, the same in all of them; else None."""
    every = [case for case in cases if case]
    names = dict.fromkeys(["", *(name for case in every for name in case)])
    found = {name: sum((case.get(name, case.get("", Sum())) for case in every), Sum()) for name in names}
    return found[""] if all(each.leans(name) for name, each in found.items()) else None


def sentence(found: Sum, order: str = "") -> str:
    """What a mean that leans says."""
    return (
        f"rstd leans to one side: it is off by {found.mean * U32:+.2g} on average over {found.rows} rows; fp32 explains "
        f"{found.most(order) * U32:.2g}"
    )


def _student(z: float, freedom: int) -> float:
    """The quantile of Student's t that belongs to `z` of the normal distribution (Cornish and Fisher's expansion)."""
    n = float(freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3

"""The regime that spans a storage format: every binade from the smallest subnormal to the largest number occurs.

A fault that shows in one binade alone is met by no regime whose values are of one size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from difftest.cases.draw import Draw
from reference.formats import Format
from reference.operators import Operator
from reference.operators.declaration import PARTS

# Where the binades are parted, so that in each row no element is lost beside the largest. Below 2^-8 the mean square stays under
# 1.6e-5, near the usual eps, which keeps the smallest subnormal visible; up to 2^57 squares and their sums over 8 192 columns are
# finite in fp32; beyond it they overflow, and every finite output is 0.
PARTED_AT = (-8, 58)


@dataclass(frozen=True, slots=True)
class Band:
    """Binades that share rows: exponents `low` to `high` - 1, of so many roles in turn."""

    low: int
    high: int
    roles: int

    @property
    def cells(self) -> int:
        """Pairs of a binade and a role: how many elements it takes for each to occur."""
        return (self.high - self.low) * self.roles

    def rows(self, width: int) -> int:
        """Rows of that width in which every cell occurs."""
        return -(-self.cells // width)


def bands(op: Operator, dtype: Format) -> tuple[Band, ...]:
    """The bands of a storage format, the smallest values first."""
    lowest = dtype.smallest_exponent - dtype.fraction_bits
    highest = int(torch.frexp(torch.tensor(dtype.largest, dtype=torch.float64)).exponent)
    inner = [edge for edge in PARTED_AT if lowest < edge < highest]
    roles = len(op.roles) if _multiplied(op) else 1
    return tuple(Band(low, high, roles) for low, high in zip((lowest, *inner), (*inner, highest), strict=True))


def rows_for(op: Operator, dtype: Format, width: int) -> int:
    """The rows of that width that hold every binade of every role."""
    return sum(band.rows(width) for band in bands(op, dtype))


def values(d: Draw) -> dict[str, torch.Tensor]:
    """Each row of one band; along the rows of a band its binades come round, in an order drawn anew.

    Roles that are multiplied take turns: while one goes through the binades the other is unit normal, for a product of two such
    values is 0 or Inf. Roles that are added each go through all of them.
    """
    found = {role: d.normal() for role in d.roles}
    for rows, band in _turns(d):
        shared = _round(d, band, len(rows))
        for turn, role in enumerate(d.roles):
            cell = shared if band.roles > 1 else _round(d, band, len(rows))
            mine = cell % band.roles == turn if band.roles > 1 else torch.ones_like(cell, dtype=torch.bool)
            found[role][rows] = torch.where(mine, _in_binade(d, band.low + cell // band.roles), found[role][rows])
    return found


def _multiplied(op: Operator) -> bool:
    return set(PARTS) <= set(op.roles)


def _turns(d: Draw) -> Iterator[tuple[torch.Tensor, Band]]:
    """The rows of each band: as many in a row as it takes to hold all of it, then the next band's, and from the start again."""
    found = bands(d.op, d.dtype)
    owner = torch.cat([torch.full((band.rows(d.width),), number) for number, band in enumerate(found)])
    owner = owner.repeat(-(-d.rows // len(owner)))[: d.rows]
    for number, band in enumerate(found):
        yield (owner == number).nonzero().flatten(), band


def _round(d: Draw, band: Band, rows: int) -> torch.Tensor:
    """The band's cells in an order that is drawn, over and over along the rows: rows x width."""
    order = torch.randperm(band.cells, generator=d.generator)
    return order.repeat(-(-rows * d.width // band.cells))[: rows * d.width].reshape(rows, d.width)


def _in_binade(d: Draw, exponent: torch.Tensor) -> torch.Tensor:
    """A number of either sign from each binade [2^e, 2^(e+1)) that the storage format holds exactly, float32."""
    shape, power = exponent.shape, exponent.double()
    fraction_bits = d.dtype.fraction_bits - (d.dtype.smallest_exponent - power).clamp(min=0)  # fewer where subnormal
    steps = torch.exp2(fraction_bits)
    fraction = torch.floor(torch.rand(shape, generator=d.generator).double() * steps) / steps
    sign = 2.0 * torch.randint(0, 2, shape, generator=d.generator) - 1.0
    return (sign * (1.0 + fraction) * torch.exp2(power)).float()

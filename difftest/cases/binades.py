"""The regime that spans a storage format: every binade from the smallest subnormal to the largest number occurs.

A fault that shows in one binade alone is met by no regime whose values are of one size.
"""

from __future__ import annotations

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
    every = bands(d.op, d.dtype)
    multiplied = _multiplied(d.op)
    found = {}
    shared = _cells(d, every)
    for turn, role in enumerate(d.roles):
        exponent, owner = shared if multiplied else _cells(d, every)
        found[role] = _in_binade(d, exponent)
        if multiplied:
            found[role] = torch.where(owner == turn, found[role], d.normal())
    return found


def _multiplied(op: Operator) -> bool:
    return set(PARTS) <= set(op.roles)


def _cells(d: Draw, every: tuple[Band, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """The binade's exponent of each element and the role that has it, rows x width.

    A band has as many rows as it takes to hold all of it, then comes the next, and the first again. Which row is the first is
    drawn: of fewer rows than hold every band, each band gets some in some case. Along a band's rows its cells come round in an
    order that is drawn.
    """
    owner = torch.cat([torch.full((band.rows(d.width),), number) for number, band in enumerate(every)])
    owner = owner.roll(int(torch.randint(len(owner), (1,), generator=d.generator)))
    owner = owner.repeat(-(-d.rows // len(owner)))[: d.rows]
    exponent = torch.empty(d.rows, d.width, dtype=torch.int64)
    role = torch.empty_like(exponent)
    for number, band in enumerate(every):
        mine = owner == number
        elements = int(mine.sum()) * d.width
        order = torch.randperm(band.cells, generator=d.generator).repeat(-(-elements // band.cells))[:elements]
        exponent[mine] = band.low + (order // band.roles).reshape(-1, d.width)
        role[mine] = (order % band.roles).reshape(-1, d.width)
    return exponent, role


def _in_binade(d: Draw, exponent: torch.Tensor) -> torch.Tensor:
    """A number of either sign from each binade [2^e, 2^(e+1)) that the storage format holds exactly, float32."""
    shape, power = exponent.shape, exponent.double()
    fraction_bits = d.dtype.fraction_bits - (d.dtype.smallest_exponent - power).clamp(min=0)  # fewer where subnormal
    steps = torch.exp2(fraction_bits)
    fraction = torch.floor(torch.rand(shape, generator=d.generator).double() * steps) / steps
    sign = 2.0 * torch.randint(0, 2, shape, generator=d.generator) - 1.0
    return (sign * (1.0 + fraction) * torch.exp2(power)).float()

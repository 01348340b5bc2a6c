"""The regime that spans a storage format: every binade from the smallest subnormal to the largest number occurs.

A fault that shows in one binade alone is met by no regime whose values are of one size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise

import torch

from difftest.cases.draw import Draw
from reference.formats import FORMATS, Format
from reference.operators import Operator
from reference.operators.declaration import PARTS

# Where the binades are parted, so that in each row no element is lost beside the largest. Below 2^-8 the mean square stays under
# 1.6e-5, near the usual eps, which keeps the smallest subnormal visible; up to 2^57 squares and their sums over 8 192 columns are
# finite in fp32; beyond it they overflow, and every finite output is 0.
PARTED_AT = (-8, 58)
SQUARE_OVERFLOWS = 64  # the exponent from which on the square of one element is no fp32 number
POOLS = 4  # drawn of each band; a case's seed chooses one, and where in it to begin
POOL = 2**14  # elements of a pool at least, before it comes round

# A sum lies in the binade of its leading addend: that one's significand is at least 1/8 from both ends, the other addend, of an
# exponent this much smaller, below 1/8. Where an element's square alone is near fp32's end, the significand stays below 1.5
# (1.625 as a sum), so that the squares of one element of each such binade add up to less than 0.9 of it.
FOLLOWS_BY = 4
ENDS = 0.125
SCARCE = 0.5


@dataclass(frozen=True, slots=True)
class Band:
    """Binades that share rows: exponents `low` to `high` - 1, each in so many `kinds`: of each addend as the leading one, or of
    each factor with each sign.

    `scarce`: a row has one element of each binade at most, all of one kind; the others are of the band before it.
    """

    low: int
    high: int
    kinds: int
    scarce: bool = False

    @property
    def binades(self) -> int:
        """How many there are."""
        return self.high - self.low

    def rows(self, width: int) -> int:
        """Rows of that width in which every binade occurs in every kind."""
        if self.scarce:
            return self.kinds * -(-self.binades // width)
        return -(-self.binades * self.kinds // width)


def bands(op: Operator, dtype: Format) -> tuple[Band, ...]:
    """The bands of a storage format."""
    lowest = _lowest(dtype)
    highest = int(torch.frexp(torch.tensor(dtype.largest, dtype=torch.float64)).exponent)
    if _multiplied(op):
        return (Band(lowest, highest, 2 * len(op.roles)),)
    edges = (lowest, *(edge for edge in PARTED_AT if lowest < edge < highest), highest)
    found = [Band(low, high, len(op.roles)) for low, high in pairwise(edges)]
    if highest > SQUARE_OVERFLOWS:
        found.insert(-1, Band(PARTED_AT[-1], SQUARE_OVERFLOWS, len(op.roles), scarce=True))
    return tuple(found)


def rows_for(op: Operator, dtype: Format, width: int) -> int:
    """The rows of that width that hold every binade of every role, and of the sum where roles are added."""
    return sum(band.rows(width) for band in bands(op, dtype))


def values(d: Draw) -> dict[str, torch.Tensor]:
    """Each row of one band; along the rows of a band its binades come round in a fixed order, from a place that is drawn.

    Roles that are multiplied take turns: while one goes through the binades the other is unit normal, for a product of two such
    values is 0 or Inf. Of roles that are added one leads, so that each of them and the sum goes through all binades. A band has
    as many rows as it takes to hold all of it, then comes the next, and the first again. Which row is the first is drawn: of
    fewer rows than hold every band, each band gets some in some case.
    """
    every = bands(d.op, d.dtype)
    owners = [number for number, band in enumerate(every) for _ in range(band.rows(d.width))]
    turn, number, begin = torch.randint(2**31, (3,), generator=d.generator).tolist()
    pools = [_pool(d.roles, _multiplied(d.op), d.dtype.name, band, number % POOLS) for band in every]
    drawn: dict[str, list[torch.Tensor]] = {role: [] for role in d.roles}
    so_far = [0] * len(every)
    for at, run in groupby(owners[(turn + row) % len(owners)] for row in range(d.rows)):
        rows = len(list(run))
        dense = at - 1 if every[at].scarce else at
        for role, pooled in pools[dense].items():
            stretch = _round(pooled, begin + so_far[at] * d.width, rows * d.width).reshape(rows, d.width)
            if every[at].scarce:
                _strew(every[at], pools[at][role], stretch, so_far[at], begin)
            drawn[role].append(stretch)
        so_far[at] += rows
    return {role: torch.cat(runs) if runs else torch.empty(0, d.width) for role, runs in drawn.items()}


def _strew(band: Band, pooled: torch.Tensor, rows: torch.Tensor, turn: int, begin: int) -> None:
    """Puts one element of each of a scarce band's binades into a row, as many as it has room for, at even distances."""
    width, cells = rows.shape[-1], band.binades * band.kinds
    room = min(width, band.binades)
    places = (torch.arange(room) * (width // room) + begin) % width
    first = begin % (len(pooled) // cells) * cells
    for row, of_row in enumerate(rows, turn):
        part, kind = divmod(row, band.kinds)
        of_row[places] = pooled[first + (torch.arange(room) + part * room) % band.binades * band.kinds + kind]


def _multiplied(op: Operator) -> bool:
    return set(PARTS) <= set(op.roles)


def _lowest(dtype: Format) -> int:
    """The exponent of the smallest subnormal."""
    return dtype.smallest_exponent - dtype.fraction_bits


def _round(pooled: torch.Tensor, begin: int, count: int) -> torch.Tensor:
    """A copy of so many elements of a pool from a place on, round and round."""
    begin %= len(pooled)
    turns, rest = divmod(begin + count, len(pooled))
    if not turns:
        return pooled[begin:rest].clone()
    return torch.cat((pooled[begin:], *([pooled] * (turns - 1)), pooled[:rest]))


@cache
def _pool(roles: tuple[str, ...], multiplied: bool, dtype: str, band: Band, number: int) -> Mapping[str, torch.Tensor]:
    """Values by role, float32, in which any stretch as long as the band has binades and kinds holds each in each. Of a scarce
    band they are in order: by binade, then by kind."""
    own, generator = FORMATS[dtype], torch.Generator().manual_seed(number)
    cells = band.binades * band.kinds
    order = torch.arange(cells) if band.scarce else torch.randperm(cells, generator=generator)
    order = order.repeat(-(-POOL // cells))
    exponent, kind = band.low + order // band.kinds, order % band.kinds
    found = {}
    for turn, role in enumerate(roles):
        if multiplied:
            mine = _in_binade(own, exponent, generator).abs() * (1.0 - 2.0 * (kind % 2))
            found[role] = torch.where(kind // 2 == turn, mine, torch.randn(len(order), generator=generator))
        else:
            low, high = (0.0, 1.0) if len(roles) == 1 else (ENDS, 1.0 - ENDS)
            leads = _in_binade(own, exponent, generator, low, SCARCE if band.scarce else high)
            found[role] = torch.where(kind == turn, leads, _follower(own, exponent, generator))
    return found


def _follower(own: Format, exponent: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """An addend to a leading one of that exponent, its own more often near than far below; 0 where the format has none there."""
    room = exponent - FOLLOWS_BY - _lowest(own)  # exponents further down that there are
    share = torch.rand(len(exponent), generator=generator).double()
    further = torch.floor((room.clamp(min=0) + 2.0) ** share).long() - 1
    return torch.where(room >= 0, _in_binade(own, exponent - FOLLOWS_BY - further.clamp(min=0), generator), 0.0)


def _in_binade(
    own: Format, exponent: torch.Tensor, generator: torch.Generator, low: float = 0.0, high: float = 1.0
) -> torch.Tensor:
    """A number of either sign from each binade [2^e, 2^(e+1)), its fraction in [low, high), that the storage format holds
    exactly, float32."""
    power = exponent.double()
    fraction_bits = own.fraction_bits - (own.smallest_exponent - power).clamp(min=0)  # fewer where subnormal
    steps = torch.exp2(fraction_bits)
    drawn = low + (high - low) * torch.rand(exponent.shape, generator=generator).double()
    sign = 2.0 * torch.randint(0, 2, exponent.shape, generator=generator) - 1.0
    return (sign * (1.0 + torch.floor(drawn * steps) / steps) * torch.exp2(power)).float()

"""Which pairs are judged: all of them, or a share of every stratum; and the slices that they are worked through in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from reference.formats import Format

PATTERNS = 1 << 16  # of a 16-bit format
PAIRS = PATTERNS**2
LEAST_OF_AXIS = 1 << 10  # patterns an operand: two of each of bf16's 512 strata
WIDTH = 4096  # of a slice's rows on a GPU: a usual one
# Rows of a slice on a GPU: inputs and outputs of 2^23 pairs stay in an H200's L2, and its 80 us or more of work cover what the
# launches cost the host. All pairs of silu_and_mul in bf16: 73 ms with 1024 rows (the host's time), 42 with 2048, 71 with 4096.
ROWS = 2048
ROWS_ON_CPU = 128  # of a slice on a CPU: a second's work or less, between two looks at the clock


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows `row` to `row + rows` of the first operand's patterns, columns likewise of the second's."""

    row: int
    rows: int
    column: int
    columns: int

    @property
    def pairs(self) -> int:
        """How many pairs it has."""
        return self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Domain:
    """Every pair of one pattern out of `firsts` and one out of `seconds`, (n,) int32 each."""

    firsts: torch.Tensor
    seconds: torch.Tensor
    rows: int
    width: int

    @property
    def pairs(self) -> int:
        """How many pairs it has."""
        return len(self.firsts) * len(self.seconds)

    @property
    def whole(self) -> bool:
        """Whether it is all 2^32."""
        return self.pairs == PAIRS

    def slices(self) -> Iterator[Slice]:
        """The slices, in the order in which they are worked through."""
        for column in range(0, len(self.seconds), self.width):
            for row in range(0, len(self.firsts), self.rows):
                yield Slice(row, self.rows, column, self.width)


def axis_of(share: float) -> int:
    """Patterns an operand that a share of the pairs takes, a power of two: the fewest that reach the share."""
    count = LEAST_OF_AXIS
    while count * count < share * PAIRS:
        count *= 2
    return count


def domain(storage: Format, share: float, seed: int, *, on_gpu: bool) -> Domain:
    """At least that share of the pairs: of each operand as many patterns of every stratum."""
    count = axis_of(share)
    rows, width = (ROWS, WIDTH) if on_gpu else (ROWS_ON_CPU, WIDTH)
    firsts, seconds = (patterns(storage, count, 2 * seed + operand) for operand in (0, 1))
    return Domain(firsts, seconds, min(rows, count), min(width, count))


def strata(storage: Format) -> int:
    """Strata of an operand: one for each sign and exponent, zeros and subnormals together, Inf and NaN together."""
    return PATTERNS >> storage.fraction_bits


def patterns(storage: Format, count: int, seed: int) -> torch.Tensor:
    """`count` patterns, ascending int32: of every stratum as many, its first (a power of two, zero, Inf), its last, and random
    ones between."""
    size = 1 << storage.fraction_bits
    each = count // strata(storage)
    if each == size:
        return torch.arange(PATTERNS, dtype=torch.int32)
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(strata(storage), size, generator=generator)
    order[:, [0, -1]] = -1.0  # these two come first
    chosen = order.argsort(dim=1)[:, :each].sort(dim=1).values
    first = torch.arange(strata(storage)).unsqueeze(1) * size
    return (first + chosen).flatten().to(torch.int32)

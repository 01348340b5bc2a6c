"""What a matrix calls: cells, each one operator, dtype, shape and family of inputs. Imports `difftest`'s regimes and torch."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from difftest import regimes
from difftest.dtypes import DTYPES
from reference.operators import OPERATORS

# The inputs on which implementations are compared when none are named: unit-normal rows for the norms, and every part
# of the activation's curve for the gated operators, whose negative tail is where forms that cancel fail.
REGIME = {"norm": "normal", "add_norm": "normal", "gated": "gate_sweep"}
ELEMENTS = 2**17  # of a cell's output, about
MOST_ROWS = 1024
WIDTHS = (111, 4096)  # one that needs scalar accesses, and the usual one: each costs every provider a compilation


@dataclass(frozen=True, slots=True)
class Cell:
    """One call that all implementations get."""

    op: str
    dtype: str
    rows: int
    width: int
    regime: str
    seed: int

    def inputs(self, device: str) -> dict[str, torch.Tensor]:
        """The call's tensors, drawn anew from the seed."""
        dtype = DTYPES[self.dtype]
        values = regimes.draw(self.regime, OPERATORS[self.op], self.rows, self.width, dtype, dtype, self.seed)
        return {name: value.to(device) for name, value in values.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Plan:
    """A matrix: `rows_of` against `columns_of`, over the cells; `jobs`: processes at a time, 0 for this one alone."""

    candidates: Sequence[str]
    against: Sequence[str]
    cells: Sequence[Cell]
    widths: Sequence[int]
    device: str
    seed: int = 0
    jobs: int = 0
    time_budget: float | None = None

    @property
    def names(self) -> list[str]:
        """Every implementation that is called."""
        return list(dict.fromkeys((*self.candidates, *self.against)))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each pair of different implementations once."""
        found: dict[frozenset[str], tuple[str, str]] = {}
        for a in self.candidates:
            for b in self.against:
                if a != b:
                    found.setdefault(frozenset((a, b)), (a, b))
        return list(found.values())

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Operator and dtype of the cells."""
        return list(dict.fromkeys((cell.op, cell.dtype) for cell in self.cells))


def cells(
    ops: Sequence[str],
    dtypes: Sequence[str],
    widths: Sequence[int],
    rows: Sequence[int] | None,
    names: Sequence[str] | None,
    seed: int,
) -> list[Cell]:
    """The cells of a request; regimes that do not apply to an operator are left out."""
    found = []
    for op in ops:
        family = OPERATORS[op].family
        allowed = [regime.name for regime in regimes.for_family(family)]
        chosen = [REGIME[family]] if names is None else [name for name in names if name in allowed]
        for dtype in dtypes:
            for width in widths:
                for count in rows or (max(1, min(MOST_ROWS, ELEMENTS // width)),):
                    for regime in chosen:
                        key = f"{seed}/{op}/{dtype}/{width}/{count}/{regime}"
                        found.append(Cell(op, dtype, count, width, regime, zlib.crc32(key.encode())))
    return found


def by_group(cells_: Sequence[Cell]) -> Mapping[tuple[str, str], list[Cell]]:
    """The cells by operator and dtype."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells_:
        found.setdefault((cell.op, cell.dtype), []).append(cell)
    return found

"""What a matrix was asked for: who is compared with whom, on which cases."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from difftest.cases import regimes
from difftest.cases.case import Case
from reference.contracts import contract
from reference.operators import Operator, operator

ELEMENTS = 2**17  # of a case's output, about
MOST_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A matrix: `candidates` against `against`, over the cases; `jobs`: processes at a time, 0 for this one alone."""

    candidates: Sequence[str]
    against: Sequence[str]
    cases: Sequence[Case]
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


def cases(
    ops: Sequence[str],
    dtypes: Sequence[str],
    widths: Sequence[int],
    rows: Sequence[int] | None,
    names: Sequence[str] | None,
    seed: int,
    device: str,
) -> list[Case]:
    """The cases of a request, a case's seed a function of what it is; regimes that do not apply to an operator are left out."""
    found = []
    for op in ops:
        declared = operator(op)
        chosen = [default_regime(declared)] if names is None else [name for name in names if name in regimes.names(declared)]
        for dtype in dtypes:
            for width in widths:
                for count in rows or (max(1, min(MOST_ROWS, ELEMENTS // width)),):
                    for regime in chosen:
                        own = zlib.crc32(f"{seed}/{op}/{dtype}/{width}/{count}/{regime}".encode())
                        found.append(Case(op, dtype, (count,), width, regime, own, contract(op), device=device))
    return found


def default_regime(op: Operator) -> str:
    """The inputs on which implementations are compared when none are named.

    Of an activation every part of its curve, whose negative tail is where forms that cancel fail; else unit-normal rows.
    """
    return "gate_sweep" if op.activation else "normal"


def by_group(cases_: Sequence[Case]) -> Mapping[tuple[str, str], list[Case]]:
    """The cases by operator and dtype."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in cases_:
        found.setdefault((case.op, case.dtype), []).append(case)
    return found

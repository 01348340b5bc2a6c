"""What cases are asked for: operators under their contracts, dtypes, widths, rows, families of values, and how thoroughly."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from difftest.cases import regimes
from difftest.cases.case import OUT_NONE, Case, outs
from reference.contracts import Contract
from reference.operators import operator


@dataclass(frozen=True, slots=True)
class Request:
    """What to generate. `contracts`: operator -> what it is held to, eps included; `also`: further ones of the covering array.

    `rows` None lets the width decide, `regimes` None takes all that apply. `strength`: how many dimensions the covering array
    combines in every way; 0 leaves it out. `extra`: random cases. `widest`: of an array's or a random case's rows; None: the
    widest that was asked for. `few_forms`: keep to widths that share compiled kernels. `no_out`: operators whose candidate takes
    no `out`.
    """

    contracts: Mapping[str, Contract]
    dtypes: Sequence[str]
    widths: Sequence[int]
    rows: Sequence[int] | None = None
    regimes: Sequence[str] | None = None
    extra: int = 0
    seed: int = 0
    device: str = "cpu"
    strength: int = 0
    widest: int | None = None
    few_forms: bool = False
    also: Mapping[str, Sequence[Contract]] = field(default_factory=dict)
    no_out: frozenset[str] = frozenset()

    @property
    def most(self) -> int:
        """The widest row of the covering array and of the random cases."""
        return max(self.widths) if self.widest is None else self.widest

    def template(self, op: str, dtype: str, width: int, regime: str, lead: tuple[int, ...], **layout: Any) -> Case:
        """A case of this request, with its contract's numbers but for those in `layout` and those that the regime has of its own.

        Its seed is a function of the base seed and of what the case is, not of its index.
        """
        key = f"{self.seed}/{op}/{dtype}/{width}/{regime}/{lead}/{sorted((k, str(v)) for k, v in layout.items())}"
        numbers = {name: layout.pop(name) for name in ("eps", *(p.name for p in operator(op).parameters)) if name in layout}
        contract = layout.pop("contract", self.contracts[op]).with_values(
            numbers | regimes.REGIMES[regime].numbers_of(operator(op))
        )
        return Case(op, dtype, lead, width, regime, zlib.crc32(key.encode()), contract, device=self.device, **layout)

    def regimes_of(self, op: str) -> list[str]:
        """The regimes to run for an operator, in their fixed order."""
        return [name for name in regimes.names(operator(op)) if self.regimes is None or name in self.regimes]

    def outs(self, op: str) -> tuple[str, ...]:
        """What the candidate can be handed as `out`."""
        return (OUT_NONE,) if op in self.no_out else outs(operator(op))

    def held_to(self, op: str) -> tuple[Contract, ...]:
        """Every contract that a candidate is held to in some case, the one asked for first."""
        return (self.contracts[op], *self.also.get(op, ()))

"""The cases that an entry is run on: those of the default `difftest` run of its operator, then those that its options add."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from difftest import options
from difftest.cases import Request, generate, regimes
from difftest.cases.case import Case
from difftest.cases.widths import WIDEST_DRAWN
from difftest.mutants.entry import Entry
from difftest.run.perform import takes_out
from reference.contracts import contract
from reference.formats import FORMATS

Options = Mapping[str, Any]
"""An option of `difftest` by its name on the command line -> its value."""


def default_cases(entry: Entry, defaults: Options, seed: int) -> list[Case]:
    """What `difftest --ops OP --seed SEED` runs, for each of the entry's operators."""
    return [
        case
        for op in entry.ops
        for case in _generated(op, entry.contract, _frozen(defaults), seed, entry.device, _takes_out(entry, op))
    ]


def further_cases(entry: Entry, defaults: Options, seed: int) -> list[Case]:
    """What the same command with the entry's own options beside runs; empty for an entry that needs none."""
    if not entry.beyond:
        return []
    given, widest = _frozen({**defaults, **entry.beyond}), None if "--widths" in entry.beyond else WIDEST_DRAWN
    found = (_generated(op, entry.contract, given, seed, entry.device, _takes_out(entry, op), widest) for op in entry.ops)
    return [case for each in found for case in each]


def _takes_out(entry: Entry, op: str) -> bool:
    return takes_out(entry.provider().function(op, contract(op, entry.contract)))


def _frozen(given: Options) -> tuple[tuple[str, Any], ...]:
    return tuple(given.items())


@lru_cache(maxsize=64)
def _generated(
    op: str,
    code: str,
    given: tuple[tuple[str, Any], ...],
    seed: int,
    device: str,
    out: bool,
    widest: int | None = WIDEST_DRAWN,
) -> list[Case]:
    return list(generate(request(op, code, dict(given), seed, device, out, widest)))


def request(op: str, code: str, given: Options, seed: int, device: str, out: bool, widest: int | None) -> Request:
    """What `difftest` makes of its options for one operator, whose candidate takes an `out` or doesn't."""
    rows, families = given.get("--rows", ""), given.get("--regimes", "")
    return Request(
        contracts={op: contract(op, code, float(given["--eps"]))},
        dtypes=options.names("--dtypes", given["--dtypes"], FORMATS),
        widths=options.widths(given["--widths"]),
        rows=options.whole_numbers("--rows", rows, 0) if rows else None,
        regimes=options.names("--regimes", families, regimes.REGIMES) if families else None,
        extra=int(given["--cases"]),
        strength=int(given["--strength"]),
        widest=widest,
        no_out=frozenset() if out else frozenset({op}),
        seed=seed,
        device=device,
    )


@lru_cache(maxsize=1024)
def inputs_of(case: Case) -> dict[str, torch.Tensor]:
    """The case's inputs, which every entry of its operator is called on copies of: a process keeps about an operator's."""
    return case.inputs(case.device)

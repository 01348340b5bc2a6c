"""Sums of squares in an order whose chain is longer than the rule allows, each by its name: what fp32 gives in that order.

A plain serial sum's error is no matter of chance and bounds: it is one number, and a candidate that sums so has it. Rows that
the rule does not explain are held against these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from reference.exact.bounds import U32
from reference.exact.terms import NormTerms

LANES = (4, 8, 16, 32)  # of a CPU's vectors, of a warp
TREE = 10  # additions that join the lanes, at most


@dataclass(frozen=True, slots=True)
class Order:
    """`total(rows)`: the sum of squares of (rows, width) fp32 numbers held in float64, (rows, 1) float64."""

    name: str
    total: Callable[[torch.Tensor], torch.Tensor]


def named() -> Iterator[Order]:
    """Every named order, the cheap ones first: one lane either way, lanes that take turns; squares rounded, and in FMAs.

    They are few on purpose: each has its own errors in wide rows, and a fault may be as large as one of them.
    """
    for fused in (False, True):
        for what, steps in _STEPS.items():
            yield Order(f"{what} in FMAs" if fused else what, partial(_total, steps, fused))


def _serial(rows: torch.Tensor) -> torch.Tensor:
    return rows[:, :, None]


def _from_the_end(rows: torch.Tensor) -> torch.Tensor:
    return rows.flip(-1)[:, :, None]


def _in_turn(lanes: int, rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(rows, (0, -rows.shape[-1] % lanes)).unflatten(-1, (-1, lanes))


# How rows are dealt out, (rows, width) -> (rows, steps, lanes).
_STEPS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "serial": _serial,
    "serial from the end": _from_the_end,
    **{f"{lanes} lanes in turn": partial(_in_turn, lanes) for lanes in LANES},
}


def _total(steps: Callable[[torch.Tensor], torch.Tensor], fused: bool, rows: torch.Tensor) -> torch.Tensor:
    """(rows, width) -> (rows, 1): each lane's squares added one after another in fp32, the lanes then exactly."""
    squares = np.ascontiguousarray(steps(rows).square().cpu().numpy())  # exact in float64
    with np.errstate(over="ignore", invalid="ignore"):
        if fused:
            lanes = np.zeros_like(squares[:, 0, :], dtype=np.float32)
            for step in range(squares.shape[1]):
                lanes = (lanes + squares[:, step, :]).astype(np.float32)  # float64 in between: one rounding, but for 1 in 2^29
        else:
            lanes = np.add.accumulate(squares.astype(np.float32), axis=1, dtype=np.float32)[:, -1, :]
    return torch.from_numpy(lanes).double().sum(-1, keepdim=True).to(rows.device)


def explains(terms: NormTerms, total: torch.Tensor, measured: torch.Tensor, lowest: torch.Tensor, highest: torch.Tensor) -> bool:
    """A cheap look: whether each measured row's rstd interval, (rows,), reaches what that sum makes of rstd, up to a few
    roundings.
    """
    share = (total / terms.hidden.shape[-1] - terms.mean_square) / terms.shifted
    error = ((1.0 + share).rsqrt() - 1.0)[:, 0]
    slack = (TREE + 10) * U32
    return bool((((highest >= error - slack) & (lowest <= error + slack)) | ~measured).all())

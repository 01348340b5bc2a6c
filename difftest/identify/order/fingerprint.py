"""The order in which a candidate adds the squares of a row, as far as its outputs let it be seen.

And whether another number of rows in a call changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from difftest.identify.order import outline, search
from difftest.identify.order.gauge import CANCEL, Gauge, Unobservable, Wider
from difftest.identify.order.search import NoTree
from difftest.identify.order.tree import Tree
from reference.operators import Operator
from reference.operators.contract import contract_of

ROWS = 256  # of the calls that the tree is measured in
MOST = 200_000  # rows measured of an order that does not repeat itself, then it is given up
MOST_CALLS = 20_000  # the same of the calls of a few rows
CHECKED = 1024  # pivots of a wider row whose sums are compared with the tree's, where rows cost time
COMPARED = 192  # rows that show whether calls of another number of rows sum in the same order

TREE, AT_ONCE, NO_TREE, UNSEEN = "tree", "at once", "no tree", "not observable"


@dataclass
class Order:
    """What was found at one width.

    `state`: TREE; AT_ONCE, as if exactly, which more than fp32 or a compensated sum does; NO_TREE; UNSEEN. `why`: of these two,
    and how it is that nothing is lost. `rows`: of each call. `by`: how sums were seen ("cancel", "overflow"). `asked`, `calls`:
    rows measured and calls made. `batches`: rows of a call -> what its order is: this one ("same"), or what else.
    """

    width: int
    rows: int
    state: str
    tree: Tree | None = None
    why: str = ""
    by: str = ""
    asked: int = 0
    calls: int = 0
    batches: dict[int, str] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Of two orders that are the same, the same."""
        return self.tree.identity if self.tree and self.state == TREE else self.state

    @property
    def summary(self) -> str:
        """In one line."""
        if self.state == TREE and self.tree:
            return outline.summary(self.tree)
        return f"{self.state}: {self.why}"

    @property
    def lines(self) -> list[str]:
        """In full, a line a level."""
        return outline.lines(self.tree) if self.tree and self.state == TREE else [self.summary]

    def document(self) -> dict[str, Any]:
        """Plain data. `levels`: from the elements up, where the tree repeats itself, else None; `tree`: its nodes then."""
        tree = self.tree if self.state == TREE else None
        levels = outline.levels(tree) if tree else None
        return {
            "width": self.width,
            "rows": self.rows,
            "state": self.state,
            "identity": self.identity,
            "summary": self.summary,
            "lines": self.lines,
            "levels": levels and [{"count": x.count, "stride": x.stride, "distances": list(x.distances)} for x in levels],
            "depth": tree.depth if tree else None,
            "tree": [list(map(int, node)) for node in tree.nodes] if tree and not levels else None,
            "seen_by": self.by,
            "rows_measured": self.asked,
            "calls": self.calls,
            "batches": {str(rows): found for rows, found in self.batches.items()},
        }


def order(
    op: Operator,
    function: Callable,
    dtype: torch.dtype,
    width: int,
    device: str = "cpu",
    *,
    rows: int = ROWS,
    batches: Sequence[int] = (),
    seed: int = 0,
    checked: int = CHECKED,
    most: int = MOST,
) -> Order:
    """The order in which `function` (FlashInfer's signature) adds the squares of rows of `width`, in calls of `rows` rows.

    `batches`: other numbers of rows, in calls of which some rows are compared with the tree; where they differ it is measured
    anew. `checked`: pivots whose rows must sum as the tree says, at widths of more. `most`: rows after which it is given up.
    """
    gauge = Gauge(op, function, dtype, width, device, rows, contract_of(op), checked, most)
    found = _measured(gauge, seed)
    for other in batches if found.state in (TREE, AT_ONCE) else ():
        found.batches[other] = _at(found, replace(gauge, rows=other, asked=0, calls=0), seed)
    return found


def _measured(gauge: Gauge, seed: int) -> Order:
    found = Order(gauge.width, gauge.rows, UNSEEN)
    try:
        gauge.calibrate()
        found.tree = search.measure(gauge, np.random.default_rng(seed))
        found.state = TREE
        if gauge.width > 2 and len(found.tree.nodes) == 1:
            found.state, found.why = AT_ONCE, _what_loses_nothing(gauge)
    except Wider:
        found.state, found.why = AT_ONCE, "nothing is lost, up to the root: the sum is kept in more than fp32"
    except NoTree as error:
        found.state, found.why = NO_TREE, str(error)
    except Unobservable as error:
        found.why = str(error)
    found.by, found.asked, found.calls = gauge.mask.name, gauge.asked, gauge.calls
    return found


def _at(found: Order, gauge: Gauge, seed: int) -> str:
    """What the order is in calls of another number of rows."""
    if found.state == TREE and found.tree:
        if found.width < 3:
            return "same"
        random = np.random.default_rng(seed + gauge.rows)
        pivots = random.permutation(found.width)[:COMPARED]
        try:
            if search.holds(gauge, found.tree, pivots, random):
                return "same"
        except Unobservable as error:
            return f"{UNSEEN}: {error}"
    other = _measured(replace(gauge, asked=0, calls=0, most=min(gauge.most, MOST_CALLS * gauge.rows)), seed)
    if other.identity == found.identity:
        return "same"
    return f"{other.identity}: {other.summary}" if other.state == TREE else other.summary


def _what_loses_nothing(gauge: Gauge) -> str:
    """Whether a sum that absorbs no square keeps as many bits as fp64, or fewer, as a compensated sum does."""
    either = "the sum is kept in more than fp32, or compensated (Kahan)"
    if gauge.dtype is not torch.float32 or gauge.mask is not CANCEL or gauge.width < 64:
        return either
    # An element 4 units² below the tie, and squares of 1/4 unit² that pass it together: 2^-50 of the pivot's square each.
    row = torch.full((1, gauge.width), 0.0, device=gauge.device)
    row[0, 0], row[0, 1], row[0, 2:64] = float(gauge.mask.pivot), 4096 - 2.0**-11, 0.5
    kept = bool(gauge.sees(row)[0])
    return "the sum is kept in fp64" if kept else "compensated (Kahan), or kept in less than fp64: 2^-50 of it is lost"

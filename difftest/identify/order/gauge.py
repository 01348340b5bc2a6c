"""Calls of a norm as a measurement: which squares are absorbed, and which come through because they were added together first.

One element of a row, the pivot, has a huge square B. Where the running sum holds it, fp32 steps are U = ulp(B) wide: less than
U / 2 is lost, more adds U. Two ways to see, in the outputs, whether anything was added to B:

- *cancel*: eps = -B / width, so that sum / width + eps is 0, and rstd infinite, unless something was. How much shows too.
- *overflow*: B is two steps below 2^128, and each row adds one: one more, and the sum is Inf and the outputs are 0. For
  candidates that take no negative eps; needs values of 24 bits, which fp32 has, and the fp32 sum of a bf16 row and its residual.

Rows are drawn in units: an element of k units is k * `unit`, and squares are counted in units².
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from difftest.identify.order.tree import Tree
from difftest.interrupts import no_exit
from difftest.run.call import collect
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import EPS

Rows = torch.Tensor


class Unobservable(Exception):
    """The order of this sum can't be seen; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Mask:
    """How a row is scaled. `pivot`, in units, has the square that absorbs; `step` is U in units²; `tie` what an armed element and
    the small ones with it must pass to add a step that shows.
    """

    name: str
    unit: float
    pivot: int
    step: int
    tie: int

    @property
    def room(self) -> int:
        """Less than this, in units², is lost when it is added to the pivot's square."""
        return self.step // 2


CANCEL = Mask("cancel", 2.0**-12, 2**24, 2**25, 2**24)
OVERFLOW = Mask("overflow", 2.0**40, 2**24 - 1, 2**24, 3 * 2**23)

MOST_BLOCKS = 12  # parts that a checked row has elements of: the steps that they add are counted to one, also in bf16
MOST_STEPS = 64  # 12 parts of at most three elements of at most 1.7 steps
# What a checked row puts on its elements, as multiples of U: both sides of a half, alone and in sums of two and three.
PARTS_OF_A_STEP = (0.2, 0.3, 0.45, 0.6, 0.85, 1.2, 1.35, 1.7)


@dataclass
class Gauge:
    """`function` on rows of one width, `rows` of them in every call. `asked`: rows measured so far; `calls`: calls made.

    `checked`: at most so many pivots have a row each that must sum as the tree found says. `most`: rows after which it gives up.
    """

    op: Operator
    function: Callable
    dtype: torch.dtype
    width: int
    device: str
    rows: int
    contract: Contract
    checked: int = 1024
    most: int = 200_000
    mask: Mask = CANCEL
    asked: int = 0
    calls: int = 0
    _thresholds: dict[tuple[int, int], tuple[float, float] | None] = field(default_factory=dict)
    _eps: float = 0.0
    _scale: np.ndarray = field(default_factory=lambda: np.zeros(1))  # cancel: 1 / rstd² by steps added

    # --- what a row can hold ---

    @property
    def halves(self) -> int:
        """Of how many stored values an element is the fp32 sum."""
        return len(self.op.rows) if self.mask is OVERFLOW else 1

    def stored(self, units: torch.Tensor) -> list[torch.Tensor]:
        """The row tensors whose sum comes nearest to `units`."""
        left, found = units * self.mask.unit, []
        for _ in range(self.halves):
            part = left.to(self.dtype)
            found.append(part)
            left = left - part.float()
        return found + [torch.zeros_like(found[0]) for _ in self.op.rows[len(found) :]]

    def nearest(self, units: np.ndarray) -> np.ndarray:
        """The elements, in units, that a row can hold and that are nearest to these."""
        parts = self.stored(torch.from_numpy(np.asarray(units, np.float32)))
        total = torch.stack([part.float() for part in parts]).sum(0)
        return (total / self.mask.unit).double().numpy()

    def threshold(self, least: int, size: int) -> tuple[float, float] | None:
        """An armed element and small ones such that it takes `least` of the small ones to pass the tie; None: there are none.

        `size`: how many small ones there are in the row, which together are lost.
        """
        key = least, size
        if key not in self._thresholds:
            widest = math.sqrt(self.mask.room / size)
            # Even numbers of units, so that sums of their squares are exact.
            small = np.unique(2 * np.floor(widest / 2 * 2.0 ** -np.arange(0.02, 4.0, 0.005)))
            if self.dtype is torch.float32:
                small = 2.0 ** np.floor(np.log2(small[-1:] * 0.7))
            small = small[(self.nearest(small) == small) & (small**2 * size < self.mask.room * 0.99) & (small > 0)]
            goal = self.mask.tie - (least - 0.5) * small**2
            small, goal = small[goal > self.mask.tie - self.mask.room], goal[goal > self.mask.tie - self.mask.room]
            armed = self.nearest(np.sqrt(goal))
            off = np.abs(armed**2 - goal) / small**2
            fits = np.flatnonzero(off < 0.3)
            best = fits[np.argmin(off[fits])] if len(fits) else -1
            self._thresholds[key] = (float(armed[best]), float(small[best])) if best >= 0 else None
        return self._thresholds[key]

    # --- measurements ---

    def calibrate(self) -> None:
        """Finds the way to see. Unobservable where there is none."""
        if self.width < 2:
            return
        reasons = []
        for mask in (CANCEL, OVERFLOW):
            self.mask = mask
            self._thresholds = {}
            reason = self._cancels() if mask is CANCEL else self._overflows()
            if not reason:
                return
            reasons.append(reason)
        raise Unobservable("; ".join(reasons))

    def meets(
        self, pivots: np.ndarray, armed: np.ndarray, pairs: Sequence[tuple[float, float] | None], members: np.ndarray
    ) -> np.ndarray:
        """Whether each row's armed element has passed the tie before it met the pivot, by the small ones of `members`.

        `pairs`: for each row what `threshold` gave. Elements outside of `members` are 0, which changes no sum.
        """
        inside = torch.zeros(self.width, device=self.device)
        inside[torch.from_numpy(members).to(self.device)] = 1.0
        values = np.array(pairs, np.float32)
        seen = []
        for first in range(0, len(pivots), self.rows):
            part = slice(first, first + self.rows)
            chosen = torch.from_numpy(values[part]).to(self.device)
            rows = inside * chosen[:, 1:]
            at = torch.arange(len(rows), device=self.device)
            rows[at, self._index(pivots[part])] = float(self.mask.pivot)
            rows[at, self._index(armed[part])] = chosen[:, 0]
            seen.append(self._visible(rows, pivots[part], armed[part]))
        return torch.cat(seen).cpu().numpy()

    def agrees(self, tree: Tree, pivots: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Whether rows with these pivots, and elements out of every part that meets the pivot, sum as the tree says."""
        units, spare = _drawn(self, tree, pivots, random)
        steps = self._steps(tree, units, pivots)
        if self.mask is CANCEL:
            return self._counted(units, pivots) == steps
        # Sums are told from 2^128, two steps at a time: as many as an even number says, and fewer than one more.
        with_spare = units.copy()
        with_spare[np.arange(len(units)), spare] = 4096
        more = self._steps(tree, with_spare, pivots)
        even = np.where((steps % 2 == 0)[:, None], units, with_spare)
        odd = np.where((steps % 2 == 1)[:, None], units, with_spare)
        least, most = np.where(steps % 2 == 0, steps, more), np.where(steps % 2 == 1, steps, more)
        at = np.arange(len(units))
        even[at, pivots], odd[at, pivots] = 2**24 - least // 2, 2**24 - (most + 1) // 2
        passes = self._overflowing(even, pivots) | (least == 0)
        return passes & ~self._overflowing(odd, pivots) & (least % 2 == 0) & (most % 2 == 1)

    def sees(self, units: Rows) -> np.ndarray:
        """Whether anything was added to the square of element 0, the pivot, that shows; read at element 1."""
        return self._visible(units, np.zeros(len(units), np.int64), np.ones(len(units), np.int64)).cpu().numpy()

    # --- calls ---

    def outputs(self, units: Rows) -> Rows:
        """The outputs of rows, in calls of `rows` rows; fewer are each repeated over a part of the call, the last copy read."""
        found = []
        if self.asked > self.most:
            raise Unobservable(f"no order that repeats itself, and none found in {self.most:,} rows")
        for first in range(0, len(units), self.rows):
            chunk = units[first : first + self.rows]
            ends = np.arange(1, len(chunk) + 1) * self.rows // len(chunk)
            of_row = torch.from_numpy(np.searchsorted(ends, np.arange(self.rows), side="right")).to(self.device)
            found.append(self._call(chunk[of_row])[self._index(ends - 1)])
            self.asked += len(chunk)
        return torch.cat(found)

    def _call(self, units: Rows) -> Rows:
        tensors = dict(zip(self.op.rows, self.stored(units), strict=True))
        ones = torch.full((self.width,), 1.0 - self.op.weight_bias, dtype=self.dtype, device=self.device)
        tensors = {name: tensors[name] if name in tensors else ones.clone() for name in self.op.inputs}
        arguments = list(self.op.arguments(tensors, self.contract))
        if self.mask is CANCEL:  # no contract has a negative eps
            arguments[len(tensors) + self.op.parameters.index(EPS)] = self._eps
        self.calls += 1
        try:
            with torch.no_grad(), no_exit():
                returned = self.function(*arguments)
            if self.device.startswith("cuda"):
                torch.cuda.synchronize(self.device)  # a kernel's fault shows here, not in what follows
            return collect(self.op, tensors, returned)["output"].float()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a candidate may raise anything
            raise Unobservable(f"it raised {type(error).__name__}: {error}") from None

    def _index(self, indices: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.asarray(indices, np.int64)).to(self.device)

    def _visible(self, rows: Rows, pivots: np.ndarray, reads: np.ndarray) -> torch.Tensor:
        out = self.outputs(rows)
        at = torch.arange(len(rows), device=self.device)
        if self.mask is CANCEL:
            return out[at, self._index(reads)].isfinite()
        return out[at, self._index(pivots)] == 0

    def _overflowing(self, units: np.ndarray, pivots: np.ndarray) -> np.ndarray:
        return self._visible(torch.from_numpy(units.astype(np.float32)).to(self.device), pivots, pivots).cpu().numpy()

    def _above(self, rows: Rows, pivots: np.ndarray) -> np.ndarray:
        """cancel: 1 / rstd² of each row, the mean of what its elements but the pivot say; NaN where that is not finite."""
        rows = rows.clone()
        out = self.outputs(rows)
        rows[torch.arange(len(rows), device=self.device), self._index(pivots)] = 0.0
        read = rows != 0
        rstd = torch.where(read, out / (rows * self.mask.unit), 0.0).sum(-1) / read.sum(-1)
        return torch.where(rstd.isfinite(), rstd.double() ** -2.0, torch.nan).cpu().numpy()

    def _counted(self, units: np.ndarray, pivots: np.ndarray) -> np.ndarray:
        """cancel: how many steps U were added to the pivot's square: as many as one element adds whose row reads nearest."""
        above = self._above(torch.from_numpy(units.astype(np.float32)).to(self.device), pivots)
        nearest = np.abs(np.nan_to_num(above)[:, None] - self._scale).argmin(-1)
        return np.where(np.isnan(above), 0, nearest)

    def _read_scale(self) -> None:
        """cancel: what a row reads to whose pivot 0, 1, 2, … steps are added by one element."""
        counts = np.arange(1, MOST_STEPS)
        units = np.zeros((len(counts), self.width), np.float32)
        # Others that add nothing, so that more than one output tells.
        small = math.sqrt(self.mask.room / self.width / 64) * np.linspace(0.5, 1.0, self.width)
        units[:] = self.nearest(small)
        units[:, 0], units[:, 1] = self.mask.pivot, self.nearest(np.sqrt(counts * self.mask.step))
        above = self._above(torch.from_numpy(units).to(self.device), np.zeros(len(counts), np.int64))
        self._scale = np.concatenate([[0.0], above])

    def _steps(self, tree: Tree, units: np.ndarray, pivots: np.ndarray) -> np.ndarray:
        """How many steps the tree says."""
        squares = units.astype(np.float32).T ** 2
        squares[pivots, np.arange(len(pivots))] = big = np.float32(self.mask.step * 2.0**23)
        return np.rint((tree.sums(squares).astype(np.float64) - big) / self.mask.step).astype(np.int64)

    # --- calibration ---

    def _two(self, armed: float) -> Rows:
        row = torch.zeros(1, self.width, device=self.device)
        row[0, 0], row[0, 1] = float(self.mask.pivot), armed
        return row

    def _around(self) -> tuple[float, float]:
        """Armed elements a little below the tie and a little above."""
        root = math.sqrt(self.mask.tie)
        near = np.unique(self.nearest(root * (1 + np.arange(-64, 65) * 2.0**-12)))
        below, above = near[near**2 < self.mask.tie * 0.9999], near[near**2 > self.mask.tie * 1.0001]
        return float(below[-1]), float(above[0])

    def _cancels(self) -> str:
        """Why a negative eps shows nothing, or nothing."""
        below, above = self._around()
        share = np.float32(1.0) / np.float32(self.width)
        at = np.array([0])
        for off in (0, 1, -1, 2, -2):  # the mean of a library may be a unit or two in the last place off
            near = float((share.view(np.int32) + np.int32(off)).view(np.float32))
            self._eps = -near * (self.mask.pivot * self.mask.unit) ** 2
            try:
                lost, seen = (self._above(self._two(armed), at)[0] for armed in (below, above))
            except Unobservable as error:
                return f"with a negative eps {error}"
            real = self.mask.step * self.mask.unit**2 / self.width
            if np.isnan(lost) and seen > 0 and abs(seen / real - 1) < 0.5 + abs(off):
                self._read_scale()
                return ""
            less = self._above(self._two(below / 2), at)[0]
            if abs((lost - less) / real / (0.75 * below**2 / self.mask.step) - 1) < 0.05:
                raise Wider
        return "a sum that eps should cancel does not show, so eps is not added to the mean as it is passed"

    def _overflows(self) -> str:
        """Why a sum near 2^128 shows nothing, or nothing."""
        if self.dtype is torch.float16 or (self.dtype is not torch.float32 and len(self.op.rows) == 1):
            return "and squares of 16-bit values can't come within a rounding of 2^128"
        below, above = self._around()
        lost, seen = (bool(self.sees(self._two(armed))[0]) for armed in (below, above))
        if lost or not seen:
            return "and a sum near 2^128 shows nothing" + (": the row is rounded to storage first" if lost and seen else "")
        return ""


class Wider(Exception):
    """Nothing is absorbed, not even one square by one other: the sum is kept in more than fp32 up to the root."""


def _drawn(gauge: Gauge, tree: Tree, pivots: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows in units, a pivot each, with up to three elements out of every part that meets it; and an element left 0 in each."""
    units = np.zeros((len(pivots), gauge.width))
    spare = np.zeros(len(pivots), np.int64)
    choice = np.sqrt(np.array(PARTS_OF_A_STEP) * gauge.mask.step)
    short = 2.0 ** (np.floor(np.log2(choice)) - 5)
    choice = np.rint(choice / short) * short  # six bits: squares and their sums are exact
    everyone = tree.elements()
    drawn = random.random((len(pivots), MOST_BLOCKS, 7))
    for row, pivot in enumerate(pivots):
        meets = [part for parts in tree.path(int(pivot)) for part in parts]
        if len(meets) > MOST_BLOCKS:
            meets = [meets[k] for k in np.sort(random.choice(len(meets), MOST_BLOCKS, replace=False))]
        for part, draw in zip(meets, drawn[row], strict=False):
            elements, count = tree.elements(part), 1 + int(3 * draw[0])
            some = elements[(len(elements) * draw[1 : 1 + count]).astype(np.int64)]
            units[row, some] = choice[(len(choice) * draw[4 : 4 + count]).astype(np.int64)]
        units[row, pivot] = gauge.mask.pivot
        free = everyone[units[row, everyone] == 0]
        if len(free):
            spare[row] = free[random.integers(len(free))]
        else:  # a row so short has none: one of those in use
            spare[row] = random.choice(everyone[everyone != pivot])
            units[row, spare[row]] = 0.0
    return units, spare

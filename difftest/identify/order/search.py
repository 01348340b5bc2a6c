"""From measurements to a tree: who has met whom before a pivot, and how many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from difftest.identify.order import regular
from difftest.identify.order.gauge import Gauge, Unobservable
from difftest.identify.order.tree import Builder, Tree, shape_of

WHOLE = 256  # up to this width every element is placed; of wider rows some, until they turn out to need more
CHECKED = 512  # rows compared at a time: what they hold is in memory several times
LEAST_CHECKED = 64  # rows compared of a narrow row, whose pivots come again
LEAST_SHAPE = 8  # elements of a part from which on its shape is worth a try
FEW = 64  # elements among which every rank can be told in every storage dtype
ALIKE = 3  # shapes of parts of a size that are tried before a part is measured anew


class NoTree(Exception):
    """No tree of additions gives what was measured; the message says what does not fit."""


def ranks(gauge: Gauge, anchor: int, members: np.ndarray) -> dict[int, int]:
    """For each other member, how many of `members` are part of the anchor's sum when that meets the member's.

    By bisection: the member is the pivot, the anchor is armed, and the threshold is passed where enough small ones are with it.
    Those that no threshold of the storage dtype tells apart are asked again without the others.
    """
    others = members[members != anchor]
    size = len(members)
    low, high = np.ones(len(others), np.int64), np.full(len(others), size - 1)
    while True:
        levels = np.unique(low[low == high])
        intervals = {(at, end) for at, end in zip(low.tolist(), high.tolist(), strict=True) if at < end}
        goal_of = {interval: _goal(gauge, *interval, levels, size) for interval in intervals}
        goals = np.array([goal_of.get(interval, 0) for interval in zip(low.tolist(), high.tolist(), strict=True)], np.int64)
        asked = np.flatnonzero(goals)
        if not len(asked):
            break
        pairs = [gauge.threshold(int(goal) - 1, size) for goal in goals[asked]]
        passed = gauge.meets(others[asked], np.full(len(asked), anchor), pairs, members)
        low[asked[passed]] = goals[asked[passed]]
        high[asked[~passed]] = goals[asked[~passed]] - 1
    found = {int(j): int(at) for j, at, end in zip(others, low, high, strict=True) if at == end}
    for at, end in _merged({(at, end) for at, end in zip(low.tolist(), high.tolist(), strict=True) if at < end}):
        group = others[(low >= at) & (high <= end)].tolist()
        before = 1 + int((high < at).sum())
        if len(group) + 1 < size:
            inner = ranks(gauge, anchor, np.array([anchor, *group]))
        else:
            inner = _ranks_by_parts(gauge, anchor, group)
        found |= {j: before + rank - 1 for j, rank in inner.items()}
    return found


def _merged(intervals: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """The intervals, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for at, end in sorted(intervals):
        if found and at <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((at, end))
    return found


def _ranks_by_parts(gauge: Gauge, anchor: int, group: list[int]) -> dict[int, int]:
    """`ranks` of so many that no threshold tells low ranks: of a few at a time, then of one for each rank among those few."""
    if len(group) <= FEW:
        raise Unobservable(f"{gauge.dtype} has no values that tell so many squares apart")
    classes: list[list[int]] = []
    for first in range(0, len(group), FEW):
        few = group[first : first + FEW]
        by_rank: dict[int, list[int]] = defaultdict(list)
        for j, rank in ranks(gauge, anchor, np.array([anchor, *few])).items():
            by_rank[rank].append(j)
        classes += by_rank.values()
    if len(classes) == len(group):
        raise Unobservable(f"{gauge.dtype} has no values that tell so many squares apart")
    among = ranks(gauge, anchor, np.array([anchor, *(each[0] for each in classes)]))
    return {j: 1 + sum(len(other) for other in classes if among[other[0]] < among[each[0]]) for each in classes for j in each}


def _goal(gauge: Gauge, low: int, high: int, levels: np.ndarray, size: int) -> int:
    """What to ask next of a rank between these: ranks that others have come first; 0: nothing that can be asked."""
    known = levels[(levels > low) & (levels <= high)]
    middle = low + 1 if low in levels else (low + high + 1) // 2
    first = int(known[len(known) // 2]) if len(known) else middle
    for goal in (first, *_outwards(first, low, high)):
        if gauge.threshold(goal - 1, size):
            return goal
    return 0


def _outwards(middle: int, low: int, high: int):
    """The other numbers above `low` and up to `high`, nearest first."""
    for off in range(1, high - low + 1):
        for goal in (middle - off, middle + off):
            if low < goal <= high:
                yield goal


def measure(gauge: Gauge, random: np.random.Generator) -> Tree:
    """The tree of a row. NoTree, Unobservable."""
    width = gauge.width
    if width < 3:  # there is one order
        return Tree(width, ((0, 1),) if width == 2 else ())
    found = _regular(gauge, random, _sample(width, random))
    if found is None and width > WHOLE:
        found = _regular(gauge, random, np.arange(width))
    if found is None:
        builder = Builder(width)
        _build(gauge, builder, np.arange(width), random, {})
        found = builder.tree()
        if not holds(gauge, found, random.permutation(width), random):
            raise NoTree("other rows sum otherwise than what the first ones say, as in a compensated (Kahan) sum")
    return found


def holds(gauge: Gauge, tree: Tree, pivots: np.ndarray, random: np.random.Generator) -> bool:
    """Whether new rows with these pivots sum as the tree says."""
    pivots = np.resize(pivots[: gauge.checked], max(LEAST_CHECKED, min(gauge.checked, len(pivots))))
    starts = range(0, len(pivots), CHECKED)
    return all(bool(gauge.agrees(tree, pivots[k : k + CHECKED], random).all()) for k in starts)


def _sample(width: int, random: np.random.Generator) -> np.ndarray:
    """The first elements, few-bit multiples of every power of two, some at random: what tells strides and counts."""
    if width <= WHOLE:
        return np.arange(width)
    few = {odd << shift for odd in range(1, 16, 2) for shift in range(width.bit_length())}
    some = {*range(64), *range(width - 16, width), *few, *map(int, random.integers(0, width, 64))}
    return np.array(sorted(each for each in some if each < width))


def _regular(gauge: Gauge, random: np.random.Generator, members: np.ndarray) -> Tree | None:
    """The tree that repeats what is added to element 0, if that is what all other rows say too."""
    blocks = _blocks(ranks(gauge, 0, members))
    if any(at_once for _, at_once in blocks):
        return None
    steps = regular.steps([others for others, _ in blocks], members, gauge.width)
    if steps is None:
        return None
    found = regular.tree(gauge.width, steps)
    complete = len(found.elements()) == gauge.width
    return found if complete and holds(gauge, found, random.permutation(gauge.width), random) else None


def _blocks(
    ranked: dict[int, int], ranks_among: Callable[[np.ndarray], dict[int, int]] | None = None
) -> list[tuple[np.ndarray, bool]]:
    """What the anchor meets, in order: the elements of each addition's other part, or of its other parts (True: several at once).

    In an addition of two parts all elements of the other one have as rank the size of the anchor's. In one of several, added as
    if exactly, an element's rank is the size of all but its own part, which is more. Parts of other sizes may have the same
    ranks, so elements are asked again, by `ranks_among`, without those that are added later: that must change nothing.
    """

    order = np.array(sorted(ranked, key=lambda j: (ranked[j], j)), np.int64)
    rank = np.array([ranked[int(j)] for j in order])
    found: list[tuple[np.ndarray, bool]] = []
    first, size = 0, 1
    while first < len(order):

        def complete(count: int, first: int = first, size: int = size) -> bool:
            if not _closed(rank[first:], size, count):
                return False
            so_far = order[: first + count]
            if ranks_among is None or rank[first + count - 1] == size or len(so_far) == len(order):
                return True
            again = ranks_among(so_far)
            return all(again[j] == ranked[j] for j in so_far[first:].tolist())

        count = next((c for c in range(1, len(order) - first + 1) if complete(c)), 0)
        if not count or rank[first] < size:
            raise NoTree("elements meet in one order seen from one side, and in another seen from the other")
        found.append((np.sort(order[first : first + count]), bool(rank[first + count - 1] > size)))
        first, size = first + count, size + count
    return found


def _closed(rank: np.ndarray, size: int, count: int) -> bool:
    """Whether the next `count` elements, and no more, have met the anchor when its sum has `count` more.

    Then the elements of one rank, which is all of the sum but their own part, are whole parts.
    """
    whole = size + count
    if rank[count - 1] >= whole or (count < len(rank) and rank[count] < whole):
        return False
    return all(many % (whole - each) == 0 for each, many in zip(*np.unique(rank[:count], return_counts=True), strict=True))


def _build(
    gauge: Gauge, builder: Builder, members: np.ndarray, random: np.random.Generator, shapes: dict[int, list[Tree]]
) -> int:
    """Joins the sum of `members`, which are a part of the tree, and returns its node."""
    if len(members) <= 2:
        return builder.join(*map(int, members))
    for shape in shapes.get(len(members), []):
        if _has_shape(gauge, members, shape, random):
            return builder.graft(shape, members.tolist())
    anchor = int(random.choice(members))
    node, size = anchor, 1
    ranked = ranks(gauge, anchor, members)
    for others, at_once in _blocks(ranked, lambda some: ranks(gauge, anchor, np.array([anchor, *some]))):
        if not at_once:
            node = builder.join(node, _build(gauge, builder, others, random, shapes))
        elif all(ranked[int(j)] == size + len(others) - 1 for j in others):  # each a part of its own
            node = builder.join(node, *map(int, others))
        else:  # among themselves they are one addition of all those parts, or of two
            rest = _build(gauge, builder, others, random, {})
            node = builder.join(node, *builder.take_apart(rest))
        size += len(others)
    if len(members) >= LEAST_SHAPE and len(members) < gauge.width and len(shapes.setdefault(len(members), [])) < ALIKE:
        shapes[len(members)].append(shape_of(builder.tree(), node))
    return node


def _has_shape(gauge: Gauge, members: np.ndarray, shape: Tree, random: np.random.Generator) -> bool:
    """Whether `members` sum in the shape of a part of that size that was measured before."""
    trial = Builder(gauge.width)
    trial.graft(shape, members.tolist())
    return holds(gauge, trial.tree(), random.permutation(members), random)

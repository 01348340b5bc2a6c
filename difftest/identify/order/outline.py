"""A tree as an outline that a person reads, from the elements up."""

from __future__ import annotations

from itertools import groupby
from math import prod

import numpy as np

from difftest.identify.order import regular
from difftest.identify.order.regular import Level
from difftest.identify.order.tree import Tree, shape_of

MOST_LINES = 12  # of a tree that does not repeat itself; `tree` in the JSON has all of it
MOST_PARTS = 64  # whose shapes are compared, of such a tree


def levels(tree: Tree) -> list[Level] | None:
    """The levels of a tree that repeats itself; None for any other."""
    path = tree.path(0)
    if any(len(parts) > 1 for parts in path):
        return None
    steps = regular.steps([tree.elements(parts[0]) for parts in path], np.arange(tree.leaves), tree.leaves) if path else []
    if steps is None or regular.tree(tree.leaves, steps).identity != tree.identity:
        return None
    return regular.levels(steps)


def summary(tree: Tree) -> str:
    """One line: `8 in sequence, x 32 pairwise, x 16 pairwise`."""
    if tree.leaves == 1:
        return "one square"
    if _at_once(tree):
        return f"all {tree.leaves} at once"
    found, backwards = _either_way(tree)
    if found is None:
        several = f", {tree.fused} of them of more than two parts" if tree.fused else ""
        return f"no order that repeats itself: {len(tree.nodes)} additions, {tree.depth} deep{several}"
    return ", x ".join(_briefly(level) for level in found) + ", from the last element on" * backwards


def lines(tree: Tree) -> list[str]:
    """The outline, a level or a part a line."""
    if tree.leaves == 1 or _at_once(tree):
        return [summary(tree)]
    found, backwards = _either_way(tree)
    if found is None:
        return _along_element_0(tree)
    written = []
    for k, level in enumerate(found):
        apart = "neighbouring" if level.stride == 1 and not k else f"{level.stride} apart"
        what = f"{level.count} {apart} elements" if not k and level.stride == 1 else f"{level.count} {_of_what(k)}, {apart}"
        written.append(f"{what}, {_how(level)}")
    if prod(level.count for level in found) > tree.leaves:
        written.append("what would lie past the end of the row is left out")
    return [*written, *["all of it counted from the last element"] * backwards]


def _either_way(tree: Tree) -> tuple[list[Level] | None, bool]:
    """The levels, counted from the first element or else (True) from the last."""
    found = levels(tree)
    if found is not None:
        return found, False
    mirrored = [tuple(tree.leaves - 1 - part if part < tree.leaves else part for part in node) for node in tree.nodes]
    found = levels(Tree(tree.leaves, tuple(mirrored)))
    return found, found is not None


def _at_once(tree: Tree) -> bool:
    return len(tree.nodes) == 1 and len(tree.nodes[0]) > 2


def _of_what(k: int) -> str:
    return "of these" if k else "elements"


def _how(level: Level) -> str:
    if level.distances in ((), (1,)):
        return "first to last"
    return f"pairwise: those {', '.join(map(str, level.distances))} apart"


def _briefly(level: Level) -> str:
    if level.distances in ((), (1,)):
        return f"{level.count} in sequence"
    order = "far" if level.distances[0] > 1 else "near"
    return f"{level.count} pairwise, {order} ones first"


def _along_element_0(tree: Tree) -> list[str]:
    """What is added to element 0, in order; parts of one shape in one line."""
    path = tree.path(0)
    written = ["to element 0 are added, in this order:"]
    shapes = []
    for parts in path[:MOST_PARTS]:
        several = f"{len(parts)} parts at once, " if len(parts) > 1 else ""
        elements = np.sort(np.concatenate([tree.elements(part) for part in parts]))
        shape = "" if len(elements) == 1 else f" ({summary(shape_of(tree, parts[0]))})" if not several else ""
        shapes.append((f"{several}{len(elements)} element{'s' * (len(elements) > 1)}", shape, elements))
    for (what, shape), group in groupby(shapes, key=lambda each: each[:2]):
        ranges = [elements for _, _, elements in group]
        times = f"{len(ranges)} times " if len(ranges) > 1 else ""
        written.append(f"{times}{what}{shape}: {', '.join(map(_indices, ranges[:3]))}{', …' * (len(ranges) > 3)}")
    if len(path) > MOST_PARTS:
        written.append(f"and {len(path) - MOST_PARTS} more parts")
    if len(written) > MOST_LINES:
        written[MOST_LINES - 1 :] = [f"and {len(written) - MOST_LINES + 1} more lines like these"]
    return written


def _indices(elements: np.ndarray) -> str:
    """`7`, `0 to 31`, `8, 40, 72`, `1, 9, … 1017`."""
    if len(elements) == 1:
        return str(elements[0])
    if elements[-1] - elements[0] == len(elements) - 1:
        return f"{elements[0]} to {elements[-1]}"
    first = ", ".join(map(str, elements[:3]))
    return first if len(elements) == 3 else f"{elements[0]}, {elements[1]}, … {elements[-1]}"

"""A summation tree: who is added to whom. Plain data and fp32 arithmetic on it; no calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Tree:
    """The additions of a row. `nodes[k]` holds the parts of node `leaves + k`; a part is an element's index or an earlier node.

    Two parts are one fp32 addition; more are added as if exactly, and rounded once. The last node is the sum. An element that no
    node holds takes no part. Which of two parts comes first changes no bit.
    """

    leaves: int
    nodes: tuple[tuple[int, ...], ...]

    @property
    def root(self) -> int:
        """The node of the whole sum."""
        return self.leaves + len(self.nodes) - 1 if self.nodes else 0

    @cached_property
    def parents(self) -> dict[int, int]:
        """Part -> the node that it is added in."""
        return {part: self.leaves + k for k, parts in enumerate(self.nodes) for part in parts}

    @cached_property
    def keys(self) -> tuple[bytes, ...]:
        """For each node, what two trees share exactly where that part of them is the same tree of the same elements."""
        found: list[bytes] = []

        def key(part: int) -> bytes:
            return str(part).encode() if part < self.leaves else found[part - self.leaves]

        for parts in self.nodes:
            joined = b" ".join(sorted(map(key, parts)))
            found.append(hashlib.sha256(joined).digest())
        return tuple(found)

    @property
    def identity(self) -> str:
        """Twelve hex digits; the same for the same tree."""
        last = self.keys[-1] if self.keys else b""
        return hashlib.sha256(b"%d " % self.leaves + last).hexdigest()[:12]

    @cached_property
    def depth(self) -> int:
        """The most additions that an element goes through."""
        depths: list[int] = []
        for parts in self.nodes:
            depths.append(1 + max(depths[p - self.leaves] if p >= self.leaves else 0 for p in parts))
        return depths[-1] if depths else 0

    @property
    def fused(self) -> int:
        """How many nodes add more than two parts at once."""
        return sum(len(parts) > 2 for parts in self.nodes)

    @cached_property
    def _spans(self) -> tuple[np.ndarray, dict[int, tuple[int, int]]]:
        """The elements in an order in which every node's lie side by side, and where each part's lie."""
        spans: dict[int, tuple[int, int]] = {}
        order: list[int] = []
        todo: list[tuple[int, int]] = [(self.root, -1)]
        while todo:
            part, began = todo.pop()
            if part < self.leaves:
                spans[part] = (len(order), len(order) + 1)
                order.append(part)
            elif began < 0:
                todo.append((part, len(order)))
                todo += [(each, -1) for each in self.nodes[part - self.leaves]]
            else:
                spans[part] = (began, len(order))
        return np.array(order), spans

    def elements(self, part: int | None = None) -> np.ndarray:
        """The indices of the elements of a part, by default of the whole sum; in no particular order."""
        order, spans = self._spans
        first, end = spans[self.root if part is None else part]
        return order[first:end]

    def path(self, element: int) -> list[list[int]]:
        """What is added to the element's sum, in order: the other parts of each node on its way to the root."""
        found, part = [], element
        while part in self.parents:
            above = self.parents[part]
            found.append([each for each in self.nodes[above - self.leaves] if each != part])
            part = above
        return found

    def sums(self, squares: np.ndarray) -> np.ndarray:
        """The sum of each column of `squares` (elements, columns) in fp32, in this order."""
        values: list[np.ndarray | None] = [*squares.astype(np.float32)]
        for parts in self.nodes:
            if len(parts) == 2:
                values.append(values[parts[0]] + values[parts[1]])  # type: ignore[operator]
            else:
                exact = np.sum([values[part].astype(np.float64) for part in parts], axis=0)  # type: ignore[union-attr]
                values.append(exact.astype(np.float32))
            for part in parts:
                values[part] = None  # of a wide row's sums, few are needed at a time
        last = values[-1] if self.nodes else values[0]
        assert last is not None
        return last


class Builder:
    """Additions put together one by one: `leaves` elements, then each node as it is joined."""

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves
        self.nodes: list[tuple[int, ...]] = []

    def join(self, *parts: int) -> int:
        """The node that adds these parts; a part alone is itself."""
        if len(parts) == 1:
            return parts[0]
        self.nodes.append(parts)
        return self.leaves + len(self.nodes) - 1

    def take_apart(self, part: int) -> tuple[int, ...]:
        """The parts of the node joined last, which is gone."""
        assert part == self.leaves + len(self.nodes) - 1
        return self.nodes.pop()

    def graft(self, shape: Tree, elements: Sequence[int]) -> int:
        """A tree of `elements` that has the shape of `shape`, whose elements are 0, 1, 2, …; the node of its sum."""
        here: list[int] = [int(each) for each in elements]
        for parts in shape.nodes:
            here.append(self.join(*(here[part] for part in parts)))
        return here[-1]

    def tree(self) -> Tree:
        """What was joined."""
        return Tree(self.leaves, tuple(self.nodes))


def shape_of(tree: Tree, part: int | None = None) -> Tree:
    """The part as a tree of its own, its elements counted 0, 1, 2, … in rising order."""
    rank = {int(element): k for k, element in enumerate(np.sort(tree.elements(part)))}
    here: dict[int, int] = {}
    builder = Builder(len(rank))
    for node in _inner(tree, tree.root if part is None else part):
        parts = tree.nodes[node - tree.leaves]
        here[node] = builder.join(*(rank[each] if each < tree.leaves else here[each] for each in parts))
    return builder.tree()


def _inner(tree: Tree, part: int) -> Iterable[int]:
    """The nodes of a part, parts first."""
    found: list[int] = []
    todo = [part] if part >= tree.leaves else []
    while todo:
        node = todo.pop()
        found.append(node)
        todo += [each for each in tree.nodes[node - tree.leaves] if each >= tree.leaves]
    return sorted(found)

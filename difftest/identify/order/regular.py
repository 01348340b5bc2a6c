"""Trees that repeat themselves: all of one follows from what is added to element 0.

Step k adds, to what element 0 is part of, the same sum `shift` elements further on, as it was after `base` steps. So a chain of c
parts that lie s apart has the shifts s, 2s, … and one base; a butterfly over c lanes has shifts that halve, each step's base the
step before. What lies past the end of the row is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from difftest.identify.order.tree import Builder, Tree


@dataclass(frozen=True, slots=True)
class Step:
    """One addition on the way of element 0: the sum after `base` steps, `shift` elements further on."""

    shift: int
    base: int


@dataclass(frozen=True, slots=True)
class Level:
    """`count` equal parts that lie `stride` elements apart. `distances`: in which order they meet; empty: one after the other."""

    count: int
    stride: int
    distances: tuple[int, ...] = ()


def steps(blocks: Sequence[np.ndarray], among: np.ndarray, width: int) -> list[Step] | None:
    """The steps that explain what is added to element 0, of the elements `among` only; None where there are none.

    `blocks`: what is added, in order, each the indices of its elements. A chain has parts too of which no element is `among`.
    """
    known = set(map(int, among))
    sets: dict[int, np.ndarray] = {0: np.array([0])}  # what the sum holds after so many steps
    found: list[Step] = []

    def seen(base: int, shift: int) -> set[int]:
        moved = sets[base] + shift
        return known.intersection(moved[moved < width].tolist())

    def add(base: int, shift: int) -> None:
        moved = sets[base] + shift
        found.append(Step(shift, base))
        sets[len(found)] = np.concatenate([sets[len(found) - 1], moved[moved < width]])
        for old in [k for k in sets if k not in (len(found), base)]:
            del sets[old]

    def fill(end: int) -> None:
        """The chain's next parts that lie before `end`, up to one that is `among`."""
        base = found[-1].base
        stride = next(step.shift for step in found if step.base == base)
        for shift in range(found[-1].shift + stride, end, stride):
            if seen(base, shift):
                break
            add(base, shift)

    for k, block in enumerate(blocks):
        members, shift = set(map(int, block)), int(min(block))
        if found:
            fill(min([width, *(int(min(each)) for each in blocks[k:] if min(each) > found[-1].shift)]))
            base, stride = found[-1].base, next(step.shift for step in found if step.base == found[-1].base)
            if seen(base, found[-1].shift + stride) == members:
                add(base, found[-1].shift + stride)
                continue
        if seen(len(found), shift) != members:
            return None
        add(len(found), shift)
    if found:
        fill(width)
    return found


def tree(width: int, found: Sequence[Step]) -> Tree:
    """The whole tree of a row."""
    builder = Builder(width)

    def build(count: int, at: int) -> int:
        node = at
        for step in found[:count]:
            if at + step.shift < width:
                node = builder.join(node, build(step.base, at + step.shift))
        return node

    build(len(found), 0)
    return builder.tree()


def levels(found: Sequence[Step]) -> list[Level]:
    """The steps in groups, from the elements up."""
    grouped: list[Level] = []
    k = 0
    while k < len(found):
        stop = _chain(found, k)
        if stop - k > 1:
            grouped.append(Level(stop - k + 1, found[k].shift))
        else:
            stop = _pairs(found, k)
            shifts = [step.shift for step in found[k:stop]]
            stride = min(shifts)
            grouped.append(Level(2 ** len(shifts), stride, tuple(shift // stride for shift in shifts)))
        k = stop
    return grouped


def _chain(found: Sequence[Step], k: int) -> int:
    """Where the chain that begins with step k ends."""
    stop = k + 1
    while stop < len(found) and found[stop].base == found[k].base:
        stop += 1
    return stop


def _pairs(found: Sequence[Step], k: int) -> int:
    """Where the run of pairwise steps that begins with step k ends: shifts that halve, or that double."""
    stop = k + 1
    while stop < len(found) and _chain(found, stop) == stop + 1:
        before, now = found[stop - 1].shift, found[stop].shift
        first = found[k].shift, found[k + 1].shift
        halves = first[1] * 2 == first[0]
        if (now * 2 != before) if halves else (now != before * 2):
            break
        stop += 1
    return stop

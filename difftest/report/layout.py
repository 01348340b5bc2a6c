"""How wide a table's columns are in a terminal: heads and text go on below, nothing is cut, and what does not fit stands in a
further part under the same names."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

GAP = 2  # blanks between two columns


@dataclass(frozen=True, slots=True)
class Column:
    """What a column needs: `least`, its longest word; `most`, its longest entry, the head broken into words; `full`, and the head
    on one line."""

    least: int
    most: int
    full: int


@dataclass(frozen=True, slots=True)
class Part:
    """Columns that stand side by side, by index, and how wide each is."""

    columns: tuple[int, ...]
    widths: tuple[int, ...]


def column(head: str, entries: Sequence[str], longest: int | None) -> Column:
    """What a column needs. `longest`: from where on a word of it is broken all the same; None for numbers, which never are."""
    pieces = textwrap.wrap(head, 1, break_long_words=False)
    if longest is not None:
        pieces = [piece[:longest] for piece in pieces]
    words = [word[:longest] for entry in entries for word in entry.split()]
    lines = [line for entry in entries for line in entry.splitlines()]
    least = max(map(len, [*pieces, *words]), default=0)
    most = max(least, *(len(line) for line in lines)) if lines else least
    return Column(least, most, max(most, len(head)))


def parts(columns: Sequence[Column], names: int, room: int) -> list[Part]:
    """The table in parts that `room` holds, each of which begins with the first `names` columns.

    Names go on below only where that saves a second part.
    """
    if _sum([each.least for each in columns]) <= room:
        return [Part(tuple(range(len(columns))), _widths(columns, room))]
    if _sum([each.most for each in columns[:names]]) <= room // 2:
        columns = [replace(each, least=each.most) if i < names else each for i, each in enumerate(columns)]
    found: list[list[int]] = []
    for index in range(names, len(columns)):
        if not found or _sum([columns[i].least for i in [*found[-1], index]]) > room:
            found.append(list(range(names)))
        found[-1].append(index)
    return [Part(tuple(part), _widths([columns[i] for i in part], room)) for part in found]


def heads(texts: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Heads broken into lines of those widths, all of one height, the text at the bottom."""
    broken = [textwrap.wrap(text, max(1, width)) for text, width in zip(texts, widths, strict=True)]
    tallest = max(map(len, broken), default=0)
    return ["\n".join([*[""] * (tallest - len(lines)), *lines]) for lines in broken]


def _widths(columns: Sequence[Column], room: int) -> tuple[int, ...]:
    """The widest entries give way first; what is left over puts heads on one line."""
    found = [each.most for each in columns]
    while _sum(found) > room:
        shrinkable = [i for i, each in enumerate(columns) if found[i] > each.least]
        if not shrinkable:
            break  # a number, or a name, wider than the terminal
        found[max(shrinkable, key=lambda i: found[i])] -= 1
    for i, each in enumerate(columns):
        if _sum(found) + each.full - found[i] <= room:
            found[i] = each.full
    return tuple(found)


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)

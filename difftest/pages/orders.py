"""The block of what was measured of the orders in which implementations add: who has which, and each in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from difftest.bench import tables
from difftest.pages import sources
from difftest.pages.sources import ORDER
from difftest.report.table import Table, markdown

TREE = "tree"
LONG, SHORT = 12, 6  # digits of an identity, and those that name it on the page


def orders(page: Path) -> str:
    """Who adds in which order, by operator and dtype; whom the batch changes; the orders in words; what could not be seen."""
    document = sources.latest(ORDER)
    if not document:
        return sources.not_yet(ORDER)
    found = document["orders"]
    parts = [f"{tables.where(document)}: {', '.join(f'{name} {it}' for name, it in document['providers'].items())}.\n"]
    for op, dtype in dict.fromkeys((entry["op"], entry["dtype"]) for entry in found):
        group = [entry for entry in found if (entry["op"], entry["dtype"]) == (op, dtype)]
        parts += [f"### `{op}`, {dtype}\n", markdown(_who(group, document["rows"]))]
    parts += ["### The orders in words\n", markdown(_in_words([entry for entry in found if entry.get("state") == TREE]))]
    unseen = [entry for entry in found if entry.get("state") != TREE]
    if unseen:
        parts += ["### What could not be seen\n", "\n".join(dict.fromkeys(map(_unseen, unseen))) + "\n"]
    return "\n".join(parts)


def _who(group: Sequence[dict[str, Any]], rows: int) -> Table:
    """A row an implementation, a column a width, and what calls of another number of rows do."""
    widths = sorted({entry["width"] for entry in group})
    written = []
    for name in dict.fromkeys(entry["provider"] for entry in group):
        mine = {entry["width"]: entry for entry in group if entry["provider"] == name}
        written.append((name, *(_cell(mine.get(width)) for width in widths), _batches(mine, rows)))
    heads = ("implementation", *(f"width {width}" for width in widths), "calls of other numbers of rows")
    return Table("", heads, tuple(written), names=len(heads))


def _cell(entry: dict[str, Any] | None) -> str:
    if entry is None or "skipped" in entry:
        return "-"
    return f"`{entry['identity'][:SHORT]}`" if entry["state"] == TREE else entry["state"]


def _batches(mine: dict[int, dict[str, Any]], rows: int) -> str:
    """`the same in calls of 1, 16, 256, 4096`, and where not, which order instead."""
    other, numbers = [], {rows}
    for width, entry in sorted(mine.items()):
        for number, said in entry.get("batches", {}).items():
            numbers.add(int(number))
            if said != "same":
                identity, _, summary = said.partition(": ")
                what = f"`{identity[:SHORT]}`, {summary}" if len(identity) == LONG else said
                other.append(f"width {width}, {number} row{'s' * (number != '1')}: {what}")
    if not any(entry.get("batches") for entry in mine.values()):
        return "-"
    return "; ".join(other) or f"the same in calls of {', '.join(map(str, sorted(numbers)))}"


def _in_words(found: Sequence[dict[str, Any]]) -> Table:
    """A row an order, the narrowest first."""
    rows = []
    for width, identity in sorted({(entry["width"], entry["identity"]) for entry in found}):
        same = [entry for entry in found if (entry["width"], entry["identity"]) == (width, identity)]
        who = dict.fromkeys(f"{entry['provider']} {entry['dtype']}" for entry in same)
        words = "; ".join(same[0]["lines"]).replace(":; ", ": ")
        rows.append((f"`{identity[:SHORT]}`", str(width), str(same[0]["depth"]), words, ", ".join(who)))
    return Table("", ("order", "width", "additions deep", "from the elements up", "of"), tuple(rows), names=5)


def _unseen(entry: dict[str, Any]) -> str:
    """One line, the same for every width of the same reason."""
    who = f"{entry['provider']}, `{entry['op']}` {entry['dtype']}"
    if "skipped" in entry:
        return f"- {who}: not measured, {entry['skipped']}"
    return f"- {who}, width {entry['width']}: {entry['summary']}"

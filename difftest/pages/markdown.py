"""A table of text in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: bool = False) -> str:
    """The table; `right`: every column but the first is set to the right, as numbers are."""
    rule = ["---", *["---:" if right else "---"] * (len(heads) - 1)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in (heads, rule, *rows))

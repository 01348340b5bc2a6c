"""One table, shown in a terminal, as Markdown, or as HTML."""

from __future__ import annotations

import html as markup
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table as RichTable
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Styled:
    """Text that stands out: `strong`, bold in Markdown and HTML; `style`, rich's for a terminal and a class in HTML."""

    text: str
    strong: bool = False
    style: str = ""


Entry = str | Styled


@dataclass(frozen=True, slots=True)
class Table:
    """A title, column heads, and rows of text. The first `names` columns stand to the left, `left` names others that do."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    names: int = 1
    left: tuple[str, ...] = ()

    def is_left(self, index: int) -> bool:
        """Whether a column is aligned to the left, as text is; the others are numbers."""
        return index < self.names or self.columns[index] in self.left


def terminal(
    table: Table, *, frame: box.Box | None = box.SIMPLE, fold: bool = False, title_style: str = "bold", rows: Sequence[str] = ()
) -> RichTable:
    """The table for rich. `fold`: long text goes on below; else the name columns are never cut. `rows`: a style for each."""
    drawn = RichTable(
        title=Text(table.title) if table.title else None,
        title_justify="left",
        title_style=title_style,
        header_style="bold",
        box=frame,
    )
    for index, column in enumerate(table.columns):
        drawn.add_column(
            Text(column),
            justify="left" if table.is_left(index) else "right",
            overflow="fold" if fold else "ellipsis",
            no_wrap=index < table.names and not fold,
        )
    for number, row in enumerate(table.rows):
        drawn.add_row(*map(_rich, row), style=rows[number] if rows else "")
    return drawn


def markdown(table: Table) -> str:
    """The table as Markdown, its title in bold above; ends with a newline."""
    title = [f"**{table.title}**", ""] if table.title else []
    rule = ["---" if table.is_left(index) else "---:" for index in range(len(table.columns))]
    rows = [[f"**{_text(entry)}**" if _strong(entry) else _text(entry) for entry in row] for row in table.rows]
    return "\n".join([*title, *map(_line, (table.columns, rule, *rows))]) + "\n"


def html(table: Table) -> str:
    """The table as an HTML element, everything escaped; `style` becomes a class."""
    heads = "".join(_element("th", column, left=table.is_left(index)) for index, column in enumerate(table.columns))
    rows = "".join(
        "<tr>" + "".join(_element("td", entry, left=table.is_left(index)) for index, entry in enumerate(row)) + "</tr>\n"
        for row in table.rows
    )
    title = f"<caption>{markup.escape(table.title)}</caption>\n" if table.title else ""
    return f"<table>{title}<tr>{heads}</tr>\n{rows}</table>\n"


def _element(tag: str, entry: Entry, *, left: bool) -> str:
    text = markup.escape(_text(entry))
    classes = ["left"] * left + ([_style(entry)] if _style(entry) else [])
    named = f' class="{markup.escape(" ".join(classes))}"' if classes else ""
    return f"<{tag}{named}>{f'<strong>{text}</strong>' if _strong(entry) else text}</{tag}>"


def _rich(entry: Entry) -> Text:
    style = _style(entry) or ("bold" if _strong(entry) else "")
    return Text(_text(entry), style=style)


def _line(entries: Iterable[str]) -> str:
    return "| " + " | ".join(entry.replace("|", "\\|") for entry in entries) + " |"


def _text(entry: Entry) -> str:
    return entry if isinstance(entry, str) else entry.text


def _strong(entry: Entry) -> bool:
    return isinstance(entry, Styled) and entry.strong


def _style(entry: Entry) -> str:
    return "" if isinstance(entry, str) else entry.style

"""One table, shown in a terminal, as Markdown, or as HTML."""

from __future__ import annotations

import html as markup
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from difftest.report import layout


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


class Drawn:
    """A table for rich, laid out for the width of the console that it is printed on (`difftest.report.layout`)."""

    def __init__(self, table: Table, *, rule: bool, title_style: str, rows: Sequence[str]) -> None:
        self._table, self._rule, self._title_style, self._rows = table, rule, title_style, rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The title, then the parts; where there is a rule below the heads, a blank line after each."""
        table, room = self._table, options.max_width
        if table.title:
            yield Text(table.title, style=self._title_style, overflow="fold")
        columns = [
            layout.column(head, [_text(row[index]) for row in table.rows], room // 2 if table.is_left(index) else None)
            for index, head in enumerate(table.columns)
        ]
        for part in layout.parts(columns, table.names, room):
            yield self._part(part)
            if self._rule:
                yield Text("")

    def _part(self, part: layout.Part) -> RichTable:
        frame = box.SIMPLE if self._rule else None
        drawn = RichTable(box=frame, show_edge=False, pad_edge=False, collapse_padding=self._rule, header_style="bold")
        table = self._table
        heads = layout.heads([table.columns[index] for index in part.columns], part.widths)
        for index, head, width in zip(part.columns, heads, part.widths, strict=True):
            drawn.add_column(Text(head), justify="left" if table.is_left(index) else "right", overflow="fold", width=width)
        for number, row in enumerate(table.rows):
            style = self._rows[number] if self._rows else ""
            drawn.add_row(*(_rich(row[index]) for index in part.columns), style=style)
        return drawn


def terminal(table: Table, *, rule: bool = True, title_style: str = "bold", rows: Sequence[str] = ()) -> Drawn:
    """The table for a terminal of any width. `rule`: a line below the heads; `rows`: a style for each."""
    return Drawn(table, rule=rule, title_style=title_style, rows=rows)


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

"""Tables of a result file, for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from difftest.bench import results
from difftest.bench.results import Measured, Summary
from difftest.bench.shapes import OURS
from difftest.report import table
from difftest.report.table import Entry, Styled, Table
from difftest.wording import counted


def tables(document: dict[str, Any]) -> list[Table]:
    """Device time by operator and dtype, then host time."""
    found = []
    points = results.measured(document)
    for op, dtype in dict.fromkeys((point.case.op, point.case.dtype) for point in points):
        mine = [point for point in points if (point.case.op, point.case.dtype) == (op, dtype)]
        found.append(_times(f"{op}, {dtype}: microseconds on the device", mine))
    host = [(f"{op}, {shape}", times) for op, shape, times in results.host_times(document) if times]
    if host:
        names = _ordered({name for _, times in host for name in times}, results.providers(points))
        rows = tuple((what, *numbers(times, names)) for what, times in host)
        found.append(Table("Host time of a call, microseconds", ("call", *names), rows))
    return found


def facts(summary: Summary) -> list[tuple[str, str]]:
    """The few numbers of a summary as (what, value), those that the file has nothing for left out."""
    found = [
        ("points with a time of ours and of a peer", f"{summary.compared} of {summary.points}"),
        ("of them, no peer is faster", f"{summary.fastest}"),
    ]
    if summary.mean is not None:
        found.append(("our time / fastest peer's, geometric mean", f"{summary.mean:.3f}"))
    if summary.mean_few_rows is not None:
        found.append((f"the same, up to {results.FEW_ROWS} rows", f"{summary.mean_few_rows:.3f}"))
    if summary.worst:
        ratio, point = summary.worst
        found.append(("the same, worst", f"{ratio:.3f} ({point.name}, {point.fastest_peer})"))
    for what, shares in (("a copy of the same bytes", summary.shares_of_copy), ("the card's copy", summary.shares_of_card)):
        if shares:
            low, at = min(shares, key=lambda pair: pair[0])
            high = max(share for share, _ in shares)
            found.append((f"our bandwidth / {what}, where 128 MiB or more move", f"{low:.1%} ({at.name}) to {high:.1%}"))
    found += [(f"our time / quack's, {point.name}", f"{ratio:.3f}") for ratio, point in summary.wide_to_quack]
    found += [(f"our host time / {peer}'s, {op}", f"{ratio:.2f}") for op, peer, ratio in summary.host]
    return found


def where(document: dict[str, Any]) -> str:
    """Card, driver, versions and date in a line."""
    card = document.get("card") or {}
    copy = document.get("card_copy")
    parts = [str(card.get("name", "unknown card"))]
    if driver := (document.get("clocks") or {}).get("driver"):
        parts.append(f"driver {driver}")
    versions = document.get("environment") or {}
    parts += [f"{name} {versions[name]}" for name in ("torch", "numba-cuda") if name in versions]
    if copy:
        parts.append(f"copy {copy['gbps']:,.0f} GB/s")
    parts.append(" and ".join(map(str, document.get("dates") or [document.get("date", "")])))
    return ", ".join(parts)


def show(screen: Console, document: dict[str, Any]) -> None:
    """Everything in a terminal."""
    screen.print(where(document), style="dim", soft_wrap=True)
    for each in tables(document):
        rows = tuple((_unbroken(row[0]), *row[1:]) for row in each.rows)
        screen.print(table.terminal(replace(each, rows=rows)))
    summary = results.summarise(document)
    for what, value in facts(summary):
        screen.print(f"{escape(what)}: [bold]{escape(value)}[/]")
    for name, point, reason in summary.wrong:
        screen.print(f"[bold red]wrong[/] {escape(name)}, {point.name}: {escape(reason)}", soft_wrap=True)
    for reason, names in _skips(document).items():
        screen.print(f"[yellow]skipped[/] {escape(', '.join(names))}: {escape(reason)}", soft_wrap=True)
    if document.get("stopped"):
        count = len(document["not_run"])
        screen.print(f"[yellow]stopped[/]: {escape(document['stopped'])}; {counted(count, 'point')} not run", soft_wrap=True)


def _unbroken(entry: Entry) -> Entry:
    """A shape as one word: a terminal's lines don't break inside it."""
    return entry.replace(" x ", "x") if isinstance(entry, str) else entry


def markdown(document: dict[str, Any]) -> str:
    """Everything as Markdown, for a page."""
    summary = Table("", ("measure", "value"), tuple(facts(results.summarise(document))), left=("value",))
    parts = [*tables(document), summary]
    return "\n".join([where(document) + ".\n", *(table.markdown(part) for part in parts)])


def numbers(values: dict[str, float], names: Sequence[str]) -> list[Entry]:
    """A value for each name, the smallest strong, and a dash for what has none."""
    best = min(values.values(), default=None)
    return [_entry(values[name], values[name] == best) if name in values else "-" for name in names]


def _entry(value: float, best: bool) -> Entry:
    return Styled(number(value), strong=True, style="bold green") if best else number(value)


def number(value: float) -> str:
    """Three significant digits or more."""
    return f"{value:.2f}" if value < 100 else f"{value:,.1f}"


def _times(title: str, points: list[Measured]) -> Table:
    names = results.providers(points)
    rows = []
    for point in points:
        ratio, share = point.ratio(), point.share_of_copy
        rows.append(
            (
                point.shape,
                *numbers(point.us, names),
                f"{ratio:.3f}" if ratio is not None else "-",
                f"{point.gbps[OURS]:,.0f}" if OURS in point.gbps else "-",
                f"{share:.0%}" if share is not None else "-",
            )
        )
    return Table(title, ("rows x width", *names, "ours / best peer", "our GB/s", "of copy"), tuple(rows))


def _ordered(names: set[str], first: Sequence[str]) -> list[str]:
    return [*(name for name in first if name in names), *sorted(names.difference(first))]


def _skips(document: dict[str, Any]) -> dict[str, list[str]]:
    """Reason -> the providers, each with the number of points."""
    counts: dict[str, dict[str, int]] = {}
    for point in document["points"]:
        for row in point["results"]:
            if row["status"] == "skipped":
                by_name = counts.setdefault(row["reason"], {})
                by_name[row["provider"]] = by_name.get(row["provider"], 0) + 1
    return {reason: [f"{name} ({counted(count, 'point')})" for name, count in names.items()] for reason, names in counts.items()}

"""A ULP histogram as an SVG picture: a bar to the left where the candidate is smaller, to the right where it is larger, on a
logarithmic axis of elements that says so. In a page it takes the page's colours, in a file of its own it brings them along."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from difftest.report.bins import Bin, bins
from difftest.report.summary import Total
from difftest.wording import compact

WIDTH, LABEL, HALF = 344, 122, 96  # of the picture, of the names of the bins, of the bars on one side, in pixels
MIDDLE = LABEL + 8 + HALF
LINE, TOP, BOTTOM = 19, 22, 46

# Colours by what they are for; the second of each is for a dark page. Text on any of these grounds keeps a contrast of 4.5:1.
COLOURS = {
    "ground": ("#ffffff", "#16181d"),
    "card": ("#f5f6f8", "#1f2229"),
    "text": ("#1b1e24", "#e6e8ec"),
    "quiet": ("#545a66", "#a9b0bc"),
    "line": ("#d5d9e0", "#3a3f4a"),
    "link": ("#0b5394", "#8ab8f0"),
    "same": ("#b9cfe6", "#2f4a68"),
    "off": ("#f2cf8a", "#6b4e12"),
    "class": ("#f0b3ad", "#7a2a24"),
    "good": ("#14602a", "#7fd497"),
    "bad": ("#a11c14", "#ff9a90"),
    "unsure": ("#735200", "#e5bd5c"),
}

STYLE = """
.histogram text{font:12px system-ui,sans-serif;fill:var(--text)}
.histogram .quiet{fill:var(--quiet)} .histogram .axis{stroke:var(--line)}
.histogram .same{fill:var(--same)} .histogram .off{fill:var(--off)} .histogram .class{fill:var(--class)}
"""


def colours() -> str:
    """The colours as CSS variables, for a light and a dark page."""
    light, dark = (";".join(f"--{name}:{pair[i]}" for name, pair in COLOURS.items()) for i in (0, 1))
    return f":root{{color-scheme:light dark;{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def standalone(title: str, parts: list[tuple[str, Total]]) -> str:
    """A file of its own: a title, and a histogram below the other for each part, a name and its counts."""
    drawn, height = [], 34
    for name, total in parts:
        drawn.append(f'<text class="name" x="8" y="{height + 14}">{escape(f"{name}: {total.elements:,} elements")}</text>')
        drawn.append(f'<g transform="translate(8 {height + 22})">{"".join(_inside(total))}</g>')
        height += 30 + _height(total)
    width = max(WIDTH + 16, 16 + 8 * len(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="histogram" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{colours()}{STYLE}.histogram .name{{font-weight:600}}</style>'
        f'<rect width="{width}" height="{height}" style="fill:var(--ground)"/>'
        f'<text class="name" x="8" y="22">{escape(title)}</text>{"".join(drawn)}</svg>\n'
    )


def inline(total: Total, name: str) -> str:
    """An element of a page."""
    height = _height(total)
    return (
        f'<svg class="histogram" role="img" aria-label="{escape(name)}" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">{"".join(_inside(total))}</svg>'
    )


def _height(total: Total) -> int:
    return TOP + LINE * len(list(_rows(total))) + BOTTOM


def _rows(total: Total) -> Iterator[tuple[str, str, int | None, int]]:
    """(label, kind, elements below, elements above) of each line; a line of dots for bins in between that are empty."""
    found = bins(total.histogram)
    skipped = False
    for each in found:
        if not each.count:
            skipped = True
            continue
        if skipped:
            yield "⋮", "gap", 0, 0
        skipped = False
        yield _label(each), "off" if each.high else "same", each.below if each.high else None, each.above
    for kind, count in total.classes.items():
        yield kind, "class", None, count


def _label(each: Bin) -> str:
    return f"{each.low:,}" if each.low == each.high else f"{compact(each.low)} to {compact(each.high)}"


def _inside(total: Total) -> Iterator[str]:
    rows = list(_rows(total))
    largest = max((below or 0 for _, _, below, _ in rows), default=0)
    largest = max([largest, *(above for *_, above in rows)], default=1)
    digits = max(1, math.ceil(math.log10(max(largest, 2))))
    end = TOP + LINE * len(rows)
    yield f'<text x="{LABEL}" y="13" text-anchor="end" class="quiet">ULP</text>'
    yield f'<text x="{MIDDLE - 6}" y="13" text-anchor="end" class="quiet">← smaller</text>'
    yield f'<text x="{MIDDLE + 6}" y="13" class="quiet">larger →</text>'
    for number, (label, kind, below, above) in enumerate(rows):
        yield from _line(TOP + LINE * number, label, kind, below, above, digits)
    yield f'<path class="axis" d="M{MIDDLE} {TOP - 4}V{end}M{MIDDLE - HALF} {end}H{MIDDLE + HALF}" fill="none"/>'
    step = 1 if digits <= 2 else 2 if digits <= 4 else 3
    for power in range(step, digits + 1, step):
        for x in {MIDDLE - _length(10**power, digits), MIDDLE + _length(10**power, digits)}:
            yield f'<path class="axis" d="M{x} {end}v4" fill="none"/>'
            yield f'<text x="{x}" y="{end + 16}" text-anchor="middle" class="quiet">{_power(power)}</text>'
    yield f'<text x="{WIDTH - 6}" y="{end + 36}" text-anchor="end" class="quiet">elements (log scale)</text>'


def _line(y: int, label: str, kind: str, below: int | None, above: int, digits: int) -> Iterator[str]:
    text = y + 13
    yield f'<text x="{LABEL}" y="{text}" text-anchor="end">{escape(label)}</text>'
    if kind == "gap":
        return
    if below is None:  # neither smaller nor larger: across both sides
        length = _length(above, digits)
        yield f'<rect class="{kind}" x="{MIDDLE - length}" y="{y}" width="{2 * length}" height="{LINE - 3}"/>'
        yield f'<text x="{MIDDLE}" y="{text}" text-anchor="middle">{above:,}</text>'
        return
    for count, side in ((below, -1), (above, 1)):
        if count:
            length = _length(count, digits)
            x = MIDDLE if side > 0 else MIDDLE - length
            yield f'<rect class="{kind}" x="{x}" y="{y}" width="{length}" height="{LINE - 3}"/>'
        anchor = "start" if side > 0 else "end"
        yield f'<text x="{MIDDLE + 5 * side}" y="{text}" text-anchor="{anchor}">{count:,}</text>'


def _length(count: int, digits: int) -> int:
    """Pixels of a bar: one element is visible, and ten times as many are always as much longer."""
    return max(3, round(6 + (HALF - 6) * math.log10(count) / digits)) if count else 0


def _power(power: int) -> str:
    return f"{10 ** (power % 3)}{'kMGT'[power // 3 - 1] if power >= 3 else ''}"

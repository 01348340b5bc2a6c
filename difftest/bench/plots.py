"""GB/s against rows and against width as SVG files, one colour a provider, ours drawn over the others. Needs matplotlib."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from difftest.bench import results
from difftest.bench.results import Measured
from difftest.bench.shapes import OURS
from difftest.report.files import write_text

# Told apart with colour-blind eyes too (Okabe and Ito), and a marker each for print.
_COLOURS = {
    OURS: "#d55e00",
    "flashinfer": "#0072b2",
    "flashinfer-cuda": "#0072b2",
    "flashinfer-cute": "#56b4e9",
    "quack": "#009e73",
    "triton": "#cc79a7",
    "liger": "#b8a000",
    "torch-compile": "#666666",
    "torch-rmsnorm": "#a0a0a0",
    "hf": "#c4c4c4",
}
_MARKERS = "osD^vPX<>h"


def write(folder: Path, document: dict[str, Any]) -> list[Path]:
    """Writes OP-DTYPE-rows.svg and OP-DTYPE-width.svg where there are two points or more to join. Returns the files.

    A file tells the document's date and the digest of what is drawn, and is the same whenever it is drawn.
    """
    written = []
    points = results.measured(document)
    for op, dtype in dict.fromkeys((point.case.op, point.case.dtype) for point in points):
        mine = [point for point in points if (point.case.op, point.case.dtype) == (op, dtype)]
        for axis, chosen, note in (
            ("rows", *_one_width(mine)),
            ("width", *_largest_of_each_width(mine)),
        ):
            if len(chosen) >= 2:
                path = folder / f"{op}-{dtype}-{axis}.svg"
                said = {"Date": document["date"], "Identifier": digest(document)}
                _draw(path, f"{op}, {dtype}{note}", axis, chosen, said)
                written.append(path)
    return written


def digest(document: dict[str, Any]) -> str:
    """A digest of the document's points: a plot that doesn't name it was drawn from others."""
    drawn = [(p.case.op, p.case.dtype, p.case.rows, p.case.width, p.gbps, p.copy_gbps) for p in results.measured(document)]
    return f"sha256:{hashlib.sha256(json.dumps(drawn).encode()).hexdigest()[:32]}"


def _one_width(points: Sequence[Measured]) -> tuple[list[Measured], str]:
    """The points of the width that has the most of them, by rows."""
    width, _ = Counter(point.case.width for point in points).most_common(1)[0]
    return sorted((p for p in points if p.case.width == width), key=lambda p: p.case.rows), f", width {width}"


def _largest_of_each_width(points: Sequence[Measured]) -> tuple[list[Measured], str]:
    """For each width the point that moves the most, by width."""
    by_width: dict[int, Measured] = {}
    for point in points:
        if point.case.width not in by_width or point.bytes > by_width[point.case.width].bytes:
            by_width[point.case.width] = point
    return [by_width[width] for width in sorted(by_width)], ", the most rows of each width"


def _draw(path: Path, title: str, axis: str, points: list[Measured], said: dict[str, str]) -> None:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.6), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    # Evenly spaced: on a true scale neighbours such as 111 and 128 would lie on top of each other.
    placed = list(enumerate(points))
    names = results.providers(points)
    for number, name in enumerate(reversed(names)):  # ours last, over the others
        with_it = [(place, point.gbps[name]) for place, point in placed if name in point.gbps]
        ours = name == OURS
        axes.plot(
            [place for place, _ in with_it],
            [gbps for _, gbps in with_it],
            label=name,
            color=_COLOURS.get(name, "#444444"),
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=7 if ours else 4,
            linewidth=3 if ours else 1.3,
            linestyle="--" if name == "flashinfer" else "-",
            zorder=10 if ours else 3,
        )
    copied = [(place, point.copy_gbps) for place, point in placed if point.copy_gbps]
    axes.plot(
        [place for place, _ in copied],
        [gbps for _, gbps in copied],
        label="copy of the same bytes",
        color="#000000",
        linewidth=1,
        linestyle=":",
    )
    labels = [f"{p.case.rows:,}" if axis == "rows" else f"{p.case.width:,}\n({p.case.rows:,})" for p in points]
    axes.set_xticks(range(len(points)), labels, fontsize=8)
    if axis == "rows":  # from a row, where latency counts, to where memory does: three orders of magnitude
        axes.set_yscale("log")
        axes.set_xlabel("rows")
    else:
        axes.set_ylim(bottom=0)
        axes.set_xlabel("width (rows)")
    axes.set_ylabel("GB/s")
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    handles, shown = axes.get_legend_handles_labels()
    order = [*range(len(names) - 1, -1, -1), len(names)]
    axes.legend([handles[i] for i in order], [shown[i] for i in order], fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    with rc_context({"svg.hashsalt": path.stem}):
        drawn = StringIO()
        figure.savefig(drawn, format="svg", metadata=said)
    write_text(path, drawn.getvalue())

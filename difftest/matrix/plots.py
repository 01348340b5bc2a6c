"""Errors against the truth as pictures, one SVG an operator and dtype, from a matrix's document. Needs matplotlib."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from difftest.matrix.tables import in_words
from difftest.report.files import write_text


def write(folder: Path, document: dict[str, Any]) -> None:
    """Writes errors-OP-DTYPE.svg: for each implementation the error that all but a share of its elements keep below."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    for group in document["groups"]:
        members = {name: each for name, each in group["providers"].items() if each["errors"]}
        if not members:
            continue
        figure = Figure(figsize=(11, 4), layout="constrained")
        FigureCanvasSVG(figure)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        for name, each in members.items():
            quantiles = {float(level): value for level, value in each["errors"]["quantiles"].items()}
            levels = sorted(quantiles)
            places = range(len(levels))
            outlier = name in group["outliers"]
            label = f"{name}, {in_words(each)}" + (" (outlier)" if outlier else "")
            left.plot(places, [quantiles[level] for level in levels], marker="o", markersize=3, label=label)
        left.set_xticks(range(len(levels)), ["max" if level == 1.0 else f"p{100 * level:g}" for level in levels])
        left.set_yscale("symlog", linthresh=1.0)
        left.axhline(0.5, color="#999", linewidth=0.8, linestyle=":")
        left.set_ylabel("|error|, ULP (dotted: correctly rounded)")
        left.legend(fontsize=7)
        names = list(members)
        right.barh(range(len(names)), [members[name]["errors"]["mean"] for name in names], color="#4477aa")
        right.set_yticks(range(len(names)), names, fontsize=7)
        right.set_xscale("symlog", linthresh=1e-3)
        right.axvline(0.0, color="#999", linewidth=0.8)
        right.set_xlabel("bias: mean signed error, ULP")
        figure.suptitle(f"{group['op']}, {group['dtype']}: error against the truth")
        drawn = StringIO()
        figure.savefig(drawn, format="svg")
        write_text(folder / f"errors-{group['op']}-{group['dtype']}.svg", drawn.getvalue())

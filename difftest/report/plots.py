"""ULP histograms as SVG pictures, a file for each operator, dtype and reference. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from difftest.report import summary
from difftest.report.bins import bins
from difftest.run.session import Outcome


def write(folder: Path, outcome: Outcome) -> None:
    """Writes OP-DTYPE-REFERENCE.svg for each group: elements by ULP distance, a panel for each output."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    for group in summary.groups(outcome.results):
        totals = {name: total for name, total in group.totals().items() if total.elements}
        if not totals:
            continue
        figure = Figure(figsize=(5.5 * len(totals), 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        figure.suptitle(f"{group.op} {group.dtype} against {group.against}: {group.verdict}")
        for axes, (name, total) in zip(figure.subplots(1, len(totals), squeeze=False)[0], totals.items(), strict=True):
            found = bins(total.histogram)
            labels = [f"-{b.label[1:]}" for b in reversed(found[1:])] + ["0"] + [f"+{b.label[1:]}" for b in found[1:]]
            counts = [b.below for b in reversed(found[1:])] + [found[0].count if found else 0] + [b.above for b in found[1:]]
            axes.bar(range(len(labels)), counts, color="#4477aa")
            if total.classes:
                places = range(len(labels), len(labels) + len(total.classes))
                axes.bar(places, list(total.classes.values()), color="#cc3311")
                labels += list(total.classes)
            axes.set_yscale("symlog", linthresh=1)
            axes.set_xticks(range(len(labels)), labels, rotation=90 if len(labels) > 7 else 0, fontsize=7)
            axes.set_xlabel("ULP from the reference")
            axes.set_ylabel("elements")
            axes.set_title(f"{name}: {total.elements:,} elements", fontsize=9)
        figure.savefig(folder / f"{group.op}-{group.dtype}-{_safe(group.against)}.svg")


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)

"""ULP histograms as SVG files, one for each operator, dtype and reference."""

from __future__ import annotations

from pathlib import Path

from difftest.report import picture, summary
from difftest.report.files import write_text
from difftest.run.session import Outcome


def write(folder: Path, outcome: Outcome) -> None:
    """Writes OP-DTYPE-REFERENCE.svg for each group: elements by ULP distance, a histogram for each output."""
    for group in summary.groups(outcome.results):
        totals = [(name, total) for name, total in group.totals().items() if total.elements]
        if totals:
            title = f"{group.op} {group.dtype} against {group.against}: {group.verdict}"
            write_text(folder / f"{group.op}-{group.dtype}-{_safe(group.against)}.svg", picture.standalone(title, totals))


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)

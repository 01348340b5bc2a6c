"""Blocks of what was measured on a GPU: the benchmark and its plots, the ladder, contracts, first calls, the profile, tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from difftest.bench import ladder, plots, results, tables
from difftest.bench.choices import measured_choice
from difftest.bench.results import Measured
from difftest.bench.shapes import OURS
from difftest.pages import sources
from difftest.pages.forms import H200
from difftest.pages.sources import BENCH, CONTRACTS, EMULATOR, FIRST_CALL, LADDER, PLOTS, PROFILE, TUNING
from difftest.report.table import Table, markdown

PLOTTED = ("fused_add_rmsnorm", "bf16")
AXES = ("width", "rows")
# What README shows of the benchmark: a decode step, a prefill and a row that no block can hold; a norm alone; an activation.
FIVE = (
    ("fused_add_rmsnorm", 16, 4096),
    ("fused_add_rmsnorm", 4096, 4096),
    ("fused_add_rmsnorm", 8192, 65536),
    ("rmsnorm", 128, 4096),
    ("silu_and_mul", 4096, 14336),
)


def bench(page: Path) -> str:
    """What `python cli.py bench --summary FILE… --markdown` prints for the result files."""
    document = sources.benchmark()
    return tables.markdown(document) if document else sources.not_yet(BENCH)


def headline(page: Path) -> str:
    """Five rows of the benchmark, and the mean over all of its points."""
    document = sources.benchmark()
    if not document:
        return sources.not_yet(BENCH)
    points = {(p.case.op, p.case.rows, p.case.width): p for p in results.measured(document) if p.case.dtype == "bf16"}
    rows = [_headline_row(points[key]) for key in FIVE if key in points]
    heads = ("bf16, rows x width", "microseconds", "fastest peer", "ours / that", "torch.compile", "GB/s", "of a copy's")
    found = results.summarise(document)
    said = f"{tables.where(document)}.\n\n{_numbers(heads, rows)}\n"
    if found.mean is None or found.worst is None:
        return said
    worst, at = found.worst
    return said + (
        f"Over all {found.compared} points the time is {found.mean:.3f} of the fastest peer's (geometric mean; "
        f"{found.mean_few_rows or 1:.3f} up to {results.FEW_ROWS} rows), "
        f"and {worst:.3f} at worst ({at.name}).\n"
    )


def _headline_row(point: Measured) -> tuple[str, ...]:
    peer, ratio, share = point.fastest_peer, point.ratio(), point.share_of_copy
    compiled = point.us.get("torch-compile")
    return (
        f"`{point.case.op}` {point.shape}",
        tables.number(point.us[OURS]),
        f"{tables.number(point.us[peer])} ({peer})" if peer else "-",
        f"{ratio:.3f}" if ratio is not None else "-",
        tables.number(compiled) if compiled is not None else "-",
        f"{point.gbps[OURS]:,.0f}",
        f"{share:.0%}" if share is not None else "-",
    )


def width_plot(page: Path) -> str:
    """The plot of GB/s against width."""
    return _picture(page, "width")


def both_plots(page: Path) -> str:
    """Both plots."""
    return "".join(_picture(page, axis) for axis in AXES)


def plot_file(axis: str) -> Path:
    """Where the plot is kept."""
    return PLOTS / f"{'-'.join(PLOTTED)}-{axis}.svg"


def _picture(page: Path, axis: str) -> str:
    return f"![GB/s of every provider against {axis}]({plot_file(axis).relative_to(page.parent).as_posix()})\n"


def draw_plots() -> None:
    """Draws both plots anew; needs matplotlib."""
    document = _plotted()
    if document:
        PLOTS.mkdir(exist_ok=True)
        plots.write(PLOTS, document)


def stale_plots() -> list[Path]:
    """The plots that are not of the latest benchmark: a plot names the digest of what it was drawn from."""
    document = _plotted()
    if not document:
        return []
    files = [plot_file(axis) for axis in AXES]
    return [file for file in files if not file.is_file() or plots.digest(document) not in file.read_text(encoding="utf-8")]


def _plotted() -> dict[str, Any] | None:
    document = sources.benchmark()
    if not document:
        return None
    return {**document, "points": [point for point in document["points"] if (point["op"], point["dtype"]) == PLOTTED]}


def steps(page: Path) -> str:
    """Microseconds of every step of the ladder of norm kernels."""
    document = sources.latest(LADDER)
    return f"{tables.where(document)}.\n\n{markdown(ladder.table(document))}" if document else sources.not_yet(LADDER)


def contract_costs(page: Path) -> str:
    """GPU time of every contract over the default's."""
    document = sources.latest(CONTRACTS)
    if not document:
        return sources.not_yet(CONTRACTS)
    rows = []
    for point in document["points"]:
        default, *others = point["us"]
        ratios = ", ".join(f"{code} {point['ratio_to_default'][code]:.3f}" for code in others)
        shape = f"{point['rows']} x {point['width']}"
        rows.append((point["op"], point["dtype"], shape, f"{default} {point['us'][default]:.2f}", ratios))
    heads = ("operator", "dtype", "rows x width", "default, microseconds", "others, times that")
    return f"{tables.where(document)}.\n\n{_words(heads, rows)}"


def first_calls(page: Path) -> str:
    """Seconds of the first call in a process."""
    states = {
        "compiled": "kernel compiled",
        "cached": "machine code from the disk cache",
        "shipped": "machine code that the package brings",
    }
    document = sources.latest(FIRST_CALL)
    if not document:
        return sources.not_yet(FIRST_CALL)
    rows = [
        (each["op"], *(f"{each[state]['first_call']:.2f}" if state in each else "not measured" for state in states))
        for each in document["first_calls"]
    ]
    heads = ("first call in a process, seconds", *states.values())
    return f"{tables.where(document)}.\n\n{_words(heads, rows)}"


def profile(page: Path) -> str:
    """What a profiler counted of the wide rows, beside a copy of the same bytes."""
    document = sources.latest(PROFILE)
    if not document:
        return sources.not_yet(PROFILE)
    rows = [
        (each["kernel"], *(_counted(each["metrics"], *names) for names in _COUNTERS.values())) for each in document["profiles"]
    ]
    heads = ("kernel", *_COUNTERS)
    return f"{document['card']['name']}, {document['command']}, {document['date']}.\n\n{_numbers(heads, rows)}"


# Column -> the counter's name, and the units that it comes in with what each is worth.
_COUNTERS: dict[str, tuple[str, dict[str, float]]] = {
    "microseconds": ("gpu__time_duration.sum", {"us": 1.0, "ms": 1e3}),
    "MB read": ("dram__bytes_read.sum", {"Mbyte": 1.0, "Gbyte": 1e3}),
    "MB written": ("dram__bytes_write.sum", {"Mbyte": 1.0, "Gbyte": 1e3}),
    "DRAM active, %": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", {"%": 1.0}),
    "link between the L2's halves active, %": (
        "lts__ltcfabric2ltc_cycles_active.avg.pct_of_peak_sustained_elapsed",
        {"%": 1.0},
    ),
}


def _counted(metrics: dict[str, float], name: str, units: dict[str, float]) -> str:
    for unit, worth in units.items():
        if (value := metrics.get(f"{name} [{unit}]")) is not None:
            return f"{value * worth:,.1f}"
    return "-"


def emulator(page: Path) -> str:
    """Rows a second of the CPU emulator beside Numba's own simulator."""
    document = sources.latest(EMULATOR)
    if not document:
        return sources.not_yet(EMULATOR)
    where = document["environment"]
    rows = [
        (each["what"], f"{each['rows_per_second']:,.0f}", f"{each['first_launch']:.2f}" if each["first_launch"] else "-")
        for each in document["speeds"]
    ]
    what = f"RMSNorm, width {document['width']}, {document['threads']} threads a block"
    heads = (what, "rows a second", "first launch, seconds")
    return f"{where['device']}, numba {where['numba']}, {document['date']}.\n\n{_numbers(heads, rows)}"


def tuning(page: Path) -> str:
    """The form that every measured point gets today beside its fastest variant."""
    document = sources.latest(TUNING)
    if not document or not document["points"]:
        return sources.not_yet(TUNING)
    rows = []
    for point in document["points"]:
        times = {name: each["us"] for name, each in point["variants"].items()}
        best = min(times, key=times.__getitem__)
        chosen = times.get(measured_choice(point, H200) or "", math.nan)
        where = f"{point['op']} {point['dtype']} {point['rows']} x {point['width']}"
        rows.append((where, tables.number(chosen), best, tables.number(times[best]), f"{chosen / times[best]:.3f}"))
    heads = ("call", "chosen, microseconds", "fastest variant", "microseconds", "chosen / fastest")
    return f"{tables.where(document)}.\n\n{markdown(Table('', heads, tuple(rows), left=heads[2:3]))}"


def _words(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return markdown(Table("", heads, tuple(rows), names=len(heads)))


def _numbers(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return markdown(Table("", heads, tuple(rows)))

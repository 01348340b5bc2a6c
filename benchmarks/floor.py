"""What a call can't go below: our kernels beside an empty kernel with the same launch, and beside the bare loads and stores.

    python benchmarks/floor.py benchmarks/results/floor-h200.jsonl        needs a GPU; about half a minute

difftest/bench/floor.py says how. Small calls of the benchmark, and the large ones that fall behind a copy of their bytes.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from difftest.bench import floor, launch
from difftest.bench.measure import DeviceLost
from difftest.bench.run import forget
from difftest.bench.shapes import OURS
from difftest.bench.timer import GraphTimer, Timer
from difftest.cases.case import Case
from difftest.providers.resolve import resolve
from difftest.report import jsonl
from difftest.run import conditions
from numba_kernels.kernels.config import Kernel
from numba_kernels.runtime.compiling import compile_all
from numba_kernels.runtime.launch import target
from numba_kernels.tuning import Target
from reference.providers import Provider

PROCESSES = 8  # that compile: each imports torch first


def compile_ahead(wanted: Iterable[tuple[launch.Make | None, Kernel]], cc: tuple[int, int]) -> None:
    """Fills the disk cache from several processes."""
    ours, beside = [], []
    for make, kernel in wanted:
        if make is None:
            ours.append(kernel)
        else:
            beside.append((make, kernel))
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        building = [pool.submit(_compile, make, kernel, cc) for make, kernel in beside]
        with suppress(RuntimeError):  # what can't be built is left out where it is measured, with the reason
            compile_all(ours, cc, PROCESSES)
        for each in building:
            each.exception()


def _compile(make: launch.Make, kernel: Kernel, cc: tuple[int, int]) -> None:
    launch.machine_code(make, kernel, cc)


def said(point: dict[str, Any]) -> str:
    """A point in a line."""
    what = f"{point['op']} {point['dtype']} {point['rows']} x {point['width']}"
    times = [
        f"{row['kernel']} " + (f"{row['us']['median']:.3f}" if row["status"] == "ok" else f"{row['status']}: {row['reason']}")
        for row in point["results"]
    ]
    copy = [f"copy {point['copy']['us']['median']:.3f}"] if point["copy"] else []
    return f"{what}: {', '.join([*times, *copy])} us"


def measure(
    document: dict[str, Any],
    file: Path,
    cases: Sequence[Case],
    ours: Provider,
    target: Target,
    timer: Timer,
    device: torch.device,
    time_budget: float,
) -> None:
    """Every point that the time allows; the document is kept after each."""
    began = time.monotonic()
    for case in cases:
        if time.monotonic() - began > time_budget:
            document["stopped"] = "out of time"
            return
        document["points"].append(floor.point(case, ours, target, timer, device))
        jsonl.write(file, document, floor.PARTS)
        click.echo(said(document["points"][-1]))
        forget(timer)


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--time-budget", default=40.0, show_default=True, help="Once compiled, begin no further point after so many seconds."
)
def main(file: Path, time_budget: float) -> None:
    began = time.monotonic()
    device = torch.device("cuda", torch.cuda.current_device())
    where, cases, ours = target(device.index), floor.points(), resolve(OURS)
    compile_ahead(floor.to_compile(cases, where), torch.cuda.get_device_capability(device))
    click.echo(f"{len(cases)} points; compiled after {time.monotonic() - began:.1f} s")
    head = conditions.head(floor.SCHEMA, f"python benchmarks/floor.py {file.name}", device, [ours])
    document: dict[str, Any] = {**head, "stopped": None, "points": []}
    try:
        with torch.no_grad():
            measure(document, file, cases, ours, where, GraphTimer(device), device, time_budget)
    except DeviceLost as lost:
        document["stopped"] = str(lost)
    document["seconds"] = round(time.monotonic() - began, 1)
    jsonl.write(file, document, floor.PARTS)
    click.echo(f"{file}: {len(document['points'])} of {len(cases)} points in {document['seconds']} s")


if __name__ == "__main__":
    main()

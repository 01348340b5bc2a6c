"""Our kernels in the chain of a decoder layer, beside peers in the same chain; and a norm that prefetches the next weight.

    python benchmarks/chain.py benchmarks/results/chain-h200.jsonl        needs a GPU; about a minute
    python benchmarks/chain.py --prepare                                  builds FlashInfer's module, and measures nothing

difftest/bench/chain.py and difftest/bench/prefetch.py say how. FlashInfer compiles its activation at the first call, for most of
a minute: `--prepare` can do so beside something else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from difftest.bench import chain, prefetch
from difftest.bench.measure import DeviceLost, first_line
from difftest.bench.run import activation_module, forget
from difftest.bench.shapes import OURS
from difftest.bench.timer import GraphTimer, Timer
from difftest.providers.resolve import resolve
from difftest.report import jsonl
from difftest.run import conditions
from numba_kernels.runtime.launch import target
from numba_kernels.tuning import Target
from reference.operators import operator
from reference.providers import Provider


def prepare() -> None:
    """Builds FlashInfer's activation, which lands in its own cache."""
    began = time.monotonic()
    try:
        activation_module(operator(chain.ACTIVATION).activation or "")
        click.echo(f"FlashInfer's {chain.ACTIVATION} built in {time.monotonic() - began:.1f} s")
    except Exception as error:  # it fails again where it is measured, and is listed there
        click.echo(f"FlashInfer's {chain.ACTIVATION} can't be built: {first_line(error)}")


def said(what: str, entry: dict[str, Any]) -> str:
    """A measurement in a line."""
    times = [
        f"{row['name']} {row['us']['median']:.2f}" if row["status"] == "ok" else f"{row['name']} {row['status']}: {row['reason']}"
        for row in entry["results"]
    ]
    noise = "-" if entry["noise"] is None else f"{100 * entry['noise']:.2f} %"
    return f"{what}, {entry['rows']} rows: {', '.join(times)} us; noise {noise}"


def measure(
    document: dict[str, Any],
    file: Path,
    providers: Sequence[Provider],
    sizes: chain.Sizes,
    target: Target,
    timer: Timer,
    device: torch.device,
    time_budget: float,
) -> None:
    """The chain at every number of rows, then the experiment; the document is kept after each."""
    began, layers = time.monotonic(), chain.weights(sizes, device)
    in_pairs = [each for each in providers if each.name in (OURS, *prefetch.PEERS)]
    for part, rows in [(part, rows) for part in chain.PARTS for rows in chain.ROWS]:
        if time.monotonic() - began > time_budget:
            document["stopped"] = "out of time"
            return
        where = chain.setting(rows, sizes, layers, timer, device)
        if part == "layers":
            document[part].append(chain.point(where, providers))
        else:
            document[part].append(prefetch.point(where, in_pairs, target))
        jsonl.write(file, document, chain.PARTS)
        click.echo(said(part, document[part][-1]))
        forget(timer)


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--prepare", "only_prepare", is_flag=True, help="Build FlashInfer's module, and measure nothing.")
@click.option("--time-budget", default=90.0, show_default=True, help="Begin no further measurement after so many seconds.")
def main(file: Path | None, only_prepare: bool, time_budget: float) -> None:
    if only_prepare:
        prepare()
        return
    if file is None:
        raise click.UsageError("FILE: where the result goes; or --prepare")
    began = time.monotonic()
    device = torch.device("cuda", torch.cuda.current_device())
    providers = [resolve(name) for name in (OURS, *chain.PEERS)]
    head = conditions.head(chain.SCHEMA, f"python benchmarks/chain.py {file.name}", device, providers)
    document: dict[str, Any] = {**head, "rounds": chain.ROUNDS, "stopped": None, **{part: [] for part in chain.PARTS}}
    try:
        with torch.no_grad():
            timer = GraphTimer(device, cold=False)
            measure(document, file, providers, chain.Sizes(), target(device.index), timer, device, time_budget)
    except DeviceLost as lost:
        document["stopped"] = str(lost)
    document["seconds"] = round(time.monotonic() - began, 1)
    jsonl.write(file, document, chain.PARTS)
    click.echo(f"{file}: {document['seconds']} s")


if __name__ == "__main__":
    main()

"""What a rounding contract costs: the GPU time of each, beside the default's, in turns.

python benchmarks/contracts.py benchmarks/results/contracts-h200.jsonl
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

import numba_kernels
from difftest import jsonl
from difftest.bench import conditions, plan
from difftest.bench.buffers import BufferSets
from difftest.bench.timer import GraphTimer

SCHEMA = "numba-kernels/contracts/1"
POINTS = [
    *(plan.Point("fused_add_rmsnorm", "bf16", rows, 4096) for rows in (1, 128, 4096)),
    plan.Point("fused_add_rmsnorm", "fp16", 4096, 4096),
    plan.Point("rmsnorm", "bf16", 4096, 4096),
    plan.Point("silu_and_mul", "bf16", 128, 14336),
    plan.Point("silu_and_mul", "bf16", 4096, 14336),
]
ROUNDS = 9


def measure(point: plan.Point, timer: GraphTimer, device: torch.device) -> dict[str, Any]:
    """Microseconds a call by contract, each contract in turn, the order changed every round."""
    sets = BufferSets(point, plan.calls(point, plan.pool_bytes(timer.free_bytes(), 4)), device)
    function = getattr(numba_kernels, point.op)
    graphs = {}
    for code in point.operator.codes:
        calls = [partial(function, *sets.arguments(i), contract=code) for i in range(sets.count)]
        timer.warm(calls[:2])
        graphs[code] = timer.capture(calls)
    samples: dict[str, list[float]] = {code: [] for code in graphs}
    for order in plan.turns(list(graphs), ROUNDS):
        for code in order:
            samples[code] += [seconds / sets.count * 1e6 for seconds in timer.turn(graphs[code], 3, sets.refresh)]
    times = {code: round(median(values), 4) for code, values in samples.items()}
    first = times[point.operator.codes[0]]
    ratios = {code: round(us / first, 4) for code, us in times.items()}
    click.echo(f"{point}: " + ", ".join(f"{code} {us:.2f} us ({ratios[code]:.3f})" for code, us in times.items()))
    where = {"op": point.op, "dtype": point.dtype, "rows": point.rows, "width": point.width}
    return {**where, "us": times, "ratio_to_default": ratios}


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def main(file: Path) -> None:
    device = torch.device("cuda")
    timer = GraphTimer(device)
    timer.wake()
    found = {**conditions.head(SCHEMA, " ".join(sys.argv), device), "points": []}
    for point in POINTS:
        found["points"].append(measure(point, timer, device))
        jsonl.write(file, found, ["points"])
    worst = max(ratio for point in found["points"] for ratio in point["ratio_to_default"].values())
    click.echo(f"the most expensive contract costs {100 * (worst - 1):.1f} % more than the default")


if __name__ == "__main__":
    main()

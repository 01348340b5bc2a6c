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
from difftest.bench import shapes
from difftest.bench.buffers import BufferSets
from difftest.bench.shapes import timed
from difftest.bench.timer import GraphTimer
from difftest.cases.case import Case
from difftest.report import jsonl
from difftest.run import conditions

SCHEMA = "numba-kernels/contracts/1"
CASES = [
    *(timed("fused_add_rmsnorm", "bf16", rows, 4096) for rows in (1, 128, 4096)),
    timed("fused_add_rmsnorm", "fp16", 4096, 4096),
    timed("rmsnorm", "bf16", 4096, 4096),
    timed("silu_and_mul", "bf16", 128, 14336),
    timed("silu_and_mul", "bf16", 4096, 14336),
]
ROUNDS = 9


def measure(case: Case, timer: GraphTimer, device: torch.device) -> dict[str, Any]:
    """Microseconds a call by contract, each contract in turn, the order changed every round."""
    sets = BufferSets(case, shapes.calls(case, shapes.pool_bytes(timer.free_bytes(), 4)), device)
    function = getattr(numba_kernels, case.op)
    graphs = {}
    for code in case.operator.codes:
        calls = [partial(function, *sets.arguments(i), contract=code) for i in range(sets.count)]
        timer.warm(calls[:2])
        graphs[code] = timer.capture(calls)
    samples: dict[str, list[float]] = {code: [] for code in graphs}
    for order in shapes.turns(list(graphs), ROUNDS):
        for code in order:
            samples[code] += [seconds / sets.count * 1e6 for seconds in timer.turn(graphs[code], 3, sets.refresh)]
    times = {code: round(median(values), 4) for code, values in samples.items()}
    first = times[case.operator.codes[0]]
    ratios = {code: round(us / first, 4) for code, us in times.items()}
    click.echo(f"{case}: " + ", ".join(f"{code} {us:.2f} us ({ratios[code]:.3f})" for code, us in times.items()))
    return {**shapes.head(case), "us": times, "ratio_to_default": ratios}


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def main(file: Path) -> None:
    device = torch.device("cuda")
    timer = GraphTimer(device)
    timer.wake()
    found = {**conditions.head(SCHEMA, " ".join(sys.argv), device), "points": []}
    for case in CASES:
        found["points"].append(measure(case, timer, device))
        jsonl.write(file, found, ["points"])
    worst = max(ratio for point in found["points"] for ratio in point["ratio_to_default"].values())
    click.echo(f"the most expensive contract costs {100 * (worst - 1):.1f} % more than the default")


if __name__ == "__main__":
    main()

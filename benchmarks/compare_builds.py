"""Two builds of the kernels timed against each other in one run: is the new one as fast at every point of the benchmark?

    python benchmarks/compare_builds.py OLD_TREE NEW_TREE --json FILE        needs a GPU

Each tree is a checkout of this repository. Its kernels run in a process of their own; for each point the two processes take turns
(old, new, new, old, ...), so that clocks and temperature are the same for both. A turn times CUDA graphs of calls over rotating
buffers, with a cold L2, as `python cli.py bench` does. The workers use numba_kernels' public functions alone.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

SCHEMA = "numba-kernels/compare-builds/1"
ROUNDS, LAUNCHES = 8, 3  # of each build: 24 samples
MOST_CALLS, POOL_BYTES, FLUSH_BYTES = 200, 2 << 30, 256 << 20
EPS = 1e-6


def work() -> None:
    """A worker: reads a point a line and answers when its graph is ready; on `turn` it answers with seconds a call."""
    import torch

    import numba_kernels

    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")
    dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    graph = pool = first = None
    calls = 0
    for line in sys.stdin:
        asked = json.loads(line)
        if asked != "turn":
            graph = pool = first = None
            torch.cuda.empty_cache()
            op, dtype, rows, width = asked
            gated = op.endswith("_and_mul")
            shapes = [(rows, 2 * width)] if gated else [(rows, width)] * (2 if "add" in op else 1)
            size = sum(math.prod(shape) for shape in shapes) * dtypes[dtype].itemsize
            calls = max(1, min(MOST_CALLS, POOL_BYTES // size))
            torch.manual_seed(0)
            first = [torch.randn(shape, device="cuda").to(dtypes[dtype]) for shape in shapes]
            pool = [torch.empty((calls, *shape), dtype=dtypes[dtype], device="cuda") for shape in shapes]
            more = () if gated else (torch.randn(width, device="cuda").to(dtypes[dtype]), EPS)
            function = getattr(numba_kernels, op)
            for buffer, values in zip(pool, first, strict=True):
                buffer.copy_(values)
            function(*(buffer[0] for buffer in pool), *more)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept = [function(*(buffer[index] for buffer in pool), *more) for index in range(calls)]
            graph.replay()
            torch.cuda.synchronize()
            del kept
            print(json.dumps("ready"), flush=True)
            continue
        events = []
        for _ in range(LAUNCHES):
            for buffer, values in zip(pool, first, strict=True):
                buffer.copy_(values)
            flush.fill_(1.0)
            flush.sum()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(600_000)  # the host queues the graph meanwhile
            start.record()
            graph.replay()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize()
        print(json.dumps([a.elapsed_time(b) / 1e3 / calls for a, b in events]), flush=True)


class Build:
    """A worker process on one tree."""

    def __init__(self, tree: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        command = [sys.executable, str(Path(__file__).resolve()), "--worker"]
        self._process = subprocess.Popen(
            command, cwd=tree, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, what: Any) -> Any:
        """Sends a line and waits for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise click.ClickException(f"the worker ended with status {self._process.wait()}")
        return json.loads(answer)


@click.command()
@click.argument("old", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("new", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--points", default="", help="op:dtype:ROWSxWIDTH, comma-separated.  [default: the benchmark's]")
@click.option(
    "--json", "file", type=click.Path(path_type=Path), metavar="FILE", help="Result file; JSON Lines if it ends in .jsonl."
)
def compare(old: Path, new: Path, points: str, file: Path | None) -> None:
    """Times OLD and NEW in turns; exit status 1 where the new build is slower by 2 % at a point, or by 0.5 % on average."""
    import torch

    sys.path.insert(0, str(Path(__file__).parent.parent))
    from difftest.report import jsonl
    from difftest.run import conditions

    builds = {"old": Build(old.resolve()), "new": Build(new.resolve())}
    command = "python benchmarks/compare_builds.py OLD_TREE NEW_TREE"
    found: dict[str, Any] = {**conditions.head(SCHEMA, command, torch.device("cuda")), "points": []}
    ratios = []
    for point in _points(points):
        for build in builds.values():
            build.ask(point)
        samples: dict[str, list[float]] = {"old": [], "new": []}
        for turn in range(ROUNDS):
            for name in ("old", "new") if turn % 2 else ("new", "old"):
                samples[name] += builds[name].ask("turn")
        us = {name: round(1e6 * statistics.median(times), 4) for name, times in samples.items()}
        ratio = us["new"] / us["old"]
        ratios.append(ratio)
        op, dtype, rows, width = point
        found["points"].append({"op": op, "dtype": dtype, "rows": rows, "width": width, "us": us, "ratio": round(ratio, 4)})
        click.echo(f"{op} {dtype} {rows} x {width}: old {us['old']:.3f}, new {us['new']:.3f} us, {ratio:.4f}")
        if file:
            jsonl.write(file, found, ["points"])
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    click.echo(f"{len(ratios)} points, new / old: geometric mean {mean:.4f}, worst {max(ratios):.4f}")
    sys.exit(1 if mean > 1.005 or max(ratios) > 1.02 else 0)


def _points(text: str) -> list[tuple[str, str, int, int]]:
    if text:
        found = []
        for word in text.split(","):
            op, dtype, shape = word.split(":")
            rows, width = shape.split("x")
            found.append((op, dtype, int(rows), int(width)))
        return found
    from difftest.bench.shapes import cases

    return [(each.op, each.dtype, each.rows, each.width) for each in cases()]


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        work()
    else:
        compare()

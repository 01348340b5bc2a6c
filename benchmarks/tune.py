"""Times every sensible way to run a norm or gated kernel, on a GPU: what the choices of numba_kernels/tuning.py rest on.

    python benchmarks/tune.py benchmarks/results/tuning-h200.json [--shapes 1x4096,4096x4096] [--op fused_add_rmsnorm]

Each variant computes the same bits (the summation tree depends on the width alone); that is checked before it is timed. The
clock is the benchmark's: CUDA graphs over prepared buffers with a cold L2.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import click
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from difftest.bench.conditions import card, clocks, versions

from difftest.bench import plan
from difftest.bench.buffers import BufferSets
from difftest.bench.timer import GraphTimer
from numba_kernels import launch, trampoline, tuning
from numba_kernels.arrays import ITEMSIZE
from numba_kernels.compile import Spec, machine_code
from numba_kernels.gated import GatedSpec
from numba_kernels.plans import GatedPlan, NormPlan
from numba_kernels.rmsnorm import NormSpec

EPS_BITS = 0x358637BD  # fp32 1e-6
SHAPES = {
    "fused_add_rmsnorm": "1x4096,16x4096,128x4096,256x4096,512x4096,1024x4096,4096x4096,16384x4096,4096x7168,2048x8192,"
    "1024x16384,16384x1024,65536x128,8192x111,8192x65536,2048x131072,512x262144,1x16384,32x16384,64x16384,1x65536,1x131072",
    "rmsnorm": "1x4096,16x4096,128x4096,4096x4096,16384x4096,4096x7168,2048x8192,1024x16384,16384x1024,65536x128,8192x111,"
    "8192x65536,2048x131072,512x262144",
    "silu_and_mul": "1x14336,16x14336,128x14336,4096x14336,8192x4096",
}


def variants(spec: Spec) -> Iterator[tuple[str, Spec]]:
    """The chosen spec, and its neighbours that can run."""
    yield "chosen", spec
    yield from _norm_variants(spec) if isinstance(spec, NormSpec) else _gated_variants(spec)


def _norm_variants(spec: NormSpec) -> Iterator[tuple[str, NormSpec]]:
    """Every way to share the row, with every time of release and every distance to look ahead."""
    change = partial(dataclasses.replace, spec)
    if spec.access == 16 and spec.row_in == "registers":
        yield f"{'not ' if spec.prefetch else ''}prefetched", change(prefetch=not spec.prefetch)
    if spec.at_once:
        for first in (spec.at_once // 2, spec.at_once * 2):
            yield f"first {first} rows", change(at_once=first)
    for name, workers in _workers(spec):
        yield f"{name}, start", change(**workers, release="start", ahead=0)
        for release in ("loaded", "end"):
            for ahead in _aheads(spec):
                yield f"{name}, {release}, ahead {ahead}", change(**workers, release=release, ahead=ahead)
    yield "no dependent launch", change(pdl=False, release="end")
    if spec.warps > 1:
        for place in ("shared", "memory"):
            other = {"row_in": place, "warps": 16, "partials": 1, "cluster": 1, "blocks": 1, "exact": False}
            yield f"row in {place}", change(**other, ahead=0, release="loaded")


def _workers(spec: NormSpec) -> Iterator[tuple[str, dict]]:
    """Who may share a row that waits in registers."""
    segments = spec.warps * spec.partials * spec.cluster
    if spec.warps == 1:
        for rows in (1, 2, 4, 8, 16, 32):
            if 32 <= rows * spec.lanes <= 512:
                yield f"{rows} rows", {"rows": rows, "exact": False}
        return
    for cluster in (1, *tuning.CLUSTERS):
        for partials in (1, 2, 4, 8):
            warps = -(-segments // (partials * cluster))
            held = partials * spec.chain
            if not (2 <= warps <= 32 and held <= 4 and (cluster == 1 or segments >= 64) and partials * cluster <= 32):
                continue
            workers = {"warps": warps, "partials": partials, "cluster": cluster}
            workers["blocks"] = tuning.MOST_WARPS // tuning.CLUSTER_WARPS if cluster > 1 and warps <= tuning.CLUSTER_WARPS else 1
            workers["exact"] = spec.exact and warps * partials * cluster == segments
            for early in (0,) if cluster > 1 else dict.fromkeys((0, held // 2, held)):
                yield f"{warps} warps x {held}, cluster {cluster}, early {early}", {**workers, "early": early}
    if segments <= 4:
        for rows in (2, 4, 8):
            yield f"{rows} rows", {"warps": 1, "partials": 4, "rows": rows, "early": 4, "exact": False}


def _aheads(spec: NormSpec) -> tuple[int, ...]:
    """Rows to look ahead: none, or what makes so many bytes."""
    if spec.access != 16 or spec.warps == 1:
        return (0,)
    bytes_of_row = spec.warps * spec.partials * spec.cluster * spec.chain * 512 * (2 if spec.adds_residual else 1)
    return tuple(dict.fromkeys((0, *(max(1, int(mib * 2**20) // bytes_of_row) for mib in (0.75, 2, 4, 5.25, 8)))))


def _gated_variants(spec: GatedSpec) -> Iterator[tuple[str, GatedSpec]]:
    for threads in (32, 64, 128, 256):
        for vectors in (1, 2, 4):
            yield f"{threads} threads x {vectors}", dataclasses.replace(spec, lanes=threads, rows=1, vectors=vectors, exact=False)
    yield "no dependent launch", dataclasses.replace(spec, pdl=False)


def planned(point: plan.Point) -> NormPlan | GatedPlan:
    """The call as the operators plan it, contiguous."""
    rows, width, storage = point.rows, point.width, point.dtype
    if point.operator.family == "gated":
        return GatedPlan(rows, width, 2 * width, width, storage, str(point.operator.activation), False)
    adds = point.operator.family == "add_norm"
    return NormPlan(rows, width, width, width, width, storage, storage, adds, False, False, 0.0, EPS_BITS)


def _compile(spec: Spec, cc: tuple[int, int]) -> None:
    machine_code(spec, cc)


def candidates(point: plan.Point) -> list[tuple[str, Spec]]:
    """The variants of a point that this GPU can run."""
    target, call = launch.target(0), planned(point)
    spec = call.spec(target, (0,) * (2 if isinstance(call, GatedPlan) else 4), True)
    most = target.shared_bytes - tuning.SHARED_STATIC
    return [(name, s) for name, s in variants(spec) if s.threads <= 1024 and call.shape(s)[1] <= most]


def compile_all(specs: list[Spec], cc: tuple[int, int]) -> None:
    """Fill the disk cache from as many processes as there are cores."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(partial(_compile, cc=cc), list(dict.fromkeys(specs))))


def measure(point: plan.Point, timer: GraphTimer, device: torch.device) -> list[dict]:
    """Times the variants of one point."""
    timer.wake()  # the first variant would pay for the clocks
    call, specs = planned(point), candidates(point)
    sets = BufferSets(point, plan.calls(point, plan.pool_bytes(timer.free_bytes(), 2)), device)
    rows, first = [], None
    for name, variant in specs:
        grid, shared = call.shape(variant)
        cluster = variant.cluster if isinstance(variant, NormSpec) else 1
        if isinstance(variant, NormSpec) and variant.cluster > 1:
            grid = launch.resident_grid(0, launch.load(0, variant), variant, point.rows, shared)
            if grid[0] == 0:
                continue
        config = trampoline.launch_config(grid, variant.threads, shared, pdl=variant.pdl, cluster=cluster)
        record = trampoline.make_record(config, launch.load(0, variant), call.arguments(()))
        outputs = [torch.empty(point.rows, point.width, dtype=point.storage, device=device) for _ in range(sets.count)]
        calls = [partial(_run, record.ctypes.data, point, sets.tensors(i), outputs[i]) for i in range(sets.count)]
        sets.refresh()
        captured = timer.capture(calls)
        timer.replay(captured, sets.refresh)
        result = captured.outputs[-1].clone()
        same = first is None or torch.equal(result, first)
        first = result if first is None else first
        times = sorted(seconds / sets.count * 1e6 for seconds in timer.turn(captured, 9, sets.refresh))
        rows.append(
            {"variant": name, "us": round(times[len(times) // 2], 3), "same_bits": same, "spec": dataclasses.asdict(variant)}
        )
        click.echo(f"{point} {rows[-1]['us']:9.3f} us  same bits {same}  {name}")
        del captured, outputs
    return rows


def _run(record: int, point: plan.Point, tensors: dict[str, torch.Tensor], output: torch.Tensor) -> torch.Tensor:
    stream = torch._C._cuda_getCurrentRawStream(0)
    x = tensors["input"].data_ptr()
    family = point.operator.family
    if family == "gated":
        status = trampoline.launch_gated(record, stream, x, output.data_ptr())
    elif family == "norm":
        status = trampoline.launch_norm(record, stream, x, x, tensors["weight"].data_ptr(), output.data_ptr())
    else:
        output = tensors["input"]
        status = trampoline.launch_norm(record, stream, x, tensors["residual"].data_ptr(), tensors["weight"].data_ptr(), x)
    assert status == 0, status
    return output


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--op", "ops", multiple=True, default=tuple(SHAPES))
@click.option("--shapes", default="")
@click.option("--dtype", default="bf16", type=click.Choice(sorted(ITEMSIZE)))
def main(file: str, ops: tuple[str, ...], shapes: str, dtype: str) -> None:
    device = torch.device("cuda")
    timer = GraphTimer(device)
    timer.wake()
    found = {
        "card": card(device),
        "clocks": clocks(device),
        "environment": versions("cuda", []),
        "command": " ".join(sys.argv),
        "points": [],
    }
    points = [plan.Point(op, dtype, *shape) for op in ops for shape in plan.shapes(shapes or SHAPES[op])]
    compile_all([spec for point in points for _, spec in candidates(point)], torch.cuda.get_device_capability())
    for point in points:
        where = {"op": point.op, "dtype": point.dtype, "rows": point.rows, "width": point.width}
        found["points"].append({**where, "variants": measure(point, timer, device)})
        Path(file).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

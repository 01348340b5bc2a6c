"""Times the chosen configuration of a kernel beside its neighbours, on a GPU: what numba_kernels/tuning.py is held to.

    python benchmarks/tune.py benchmarks/results/tuning-h200.jsonl [--shapes 1x4096,4096x4096] [--op fused_add_rmsnorm]

The points are the benchmark's, and every call that the tuning table quotes. All variants of a point are captured first, and must
compute the same bits (the summation tree depends on the width alone). They are timed in turns by the benchmark's clock; then the
fastest and the chosen one are timed again, so that the best of many noisy times is not taken for the best. A test holds the
choice to within 2 % of the fastest variant. About four minutes on one H200; compiling fills all cores and the disk cache first.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from difftest.bench import shapes
from difftest.bench.buffers import BufferSets
from difftest.bench.choices import addresses, choice, measured_choice, plan_of
from difftest.bench.shapes import head, timed
from difftest.bench.timer import GraphTimer
from difftest.cases.case import Case
from difftest.report import jsonl
from difftest.run import conditions
from numba_kernels import tuning
from numba_kernels.backend.machine_code import machine_code
from numba_kernels.kernels.config import Config, GatedConfig, Kernel, NormConfig
from numba_kernels.plans import Plan
from numba_kernels.runtime import launch
from reference.formats import FORMATS

SCHEMA = "numba-kernels/tuning/2"
PARTS = ("points",)
ROUNDS, LAUNCHES = 4, 3
FINALISTS, FINAL_ROUNDS = 3, 8
SLACK = 0.02  # how much slower than the fastest variant a choice may be: what two runs on one card differ by
CHOSEN = "chosen"


# --- which calls --------------------------------------------------------------------------------------------------------


def points(ops: Sequence[str] = (), at: Sequence[tuple[int, int]] = ()) -> list[Case]:
    """The benchmark's points and the calls of the tuning table, or those named."""
    if at:
        return shapes.cases(ops, (), at)
    found = [*shapes.cases(), *quoted()]
    return [case for case in dict.fromkeys(found) if not ops or case.op in ops]


def quoted() -> list[Case]:
    """The calls whose times the tuning table quotes."""
    calls = [row["call"] for entry in tuning.table().values() for row in entry.get("measured", ())]
    return [case for call in calls for case in cases_in(call)]


def cases_in(call: str) -> list[Case]:
    """The case that a `call` of the tuning table begins with, "OPERATOR ROWS x WIDTH, …"; none if it begins otherwise."""
    found = re.match(r"(\w+) (\d+) x (\d+)", call)
    return [timed(found[1], "bf16", int(found[2]), int(found[3]))] if found else []


# --- the neighbours of a choice -----------------------------------------------------------------------------------------


def variants(kernel: Kernel, case: Case, target: tuning.Target) -> dict[str, Config]:
    """The chosen configuration and those next to it that fit the target, by name; each once."""
    found: dict[Config, str] = {kernel.config: CHOSEN}
    config = kernel.config
    neighbours = _of_a_norm(config, case, target) if isinstance(config, NormConfig) else _of_a_gate(config)
    for name, each in neighbours:
        fits = each.threads <= 1024 and each.cluster <= target.clusters
        shared = each.dynamic_shared_bytes(kernel.operation, case.width) + tuning.SHARED_STATIC
        if fits and shared <= target.shared_bytes:
            found.setdefault(each, name)
    return {name: each for each, name in found.items()}


def _of_a_norm(config: NormConfig, case: Case, target: tuning.Target) -> Iterator[tuple[str, NormConfig]]:
    """Other times of release, other distances to prefetch, other threads to share a row."""
    few = case.rows <= 2 * target.processors
    for release in ("start", "loaded", "end"):
        yield f"next kernel from {release}", replace(config, release=release)
    yield "no dependent launch", replace(config, pdl=False, release="end", prefetch_first=False)
    if config.access == 16 and config.row_in == "registers":
        change = not config.prefetch_first
        yield f"first rows {'' if change else 'not '}prefetched", replace(config, prefetch_first=change)
        read = case.width * FORMATS[case.dtype].itemsize * (2 if case.operator.mutated else 1)
        for mib in () if few else (0.0, 2.0, 4.0, 5.25):
            ahead = max(1, int(mib * 2**20) // read) if mib else 0
            yield f"{ahead} rows ahead", replace(config, prefetch_ahead=ahead)
    for first in (config.first_rows // 2, config.first_rows * 2) if config.first_rows else ():
        yield f"first {first} rows", replace(config, first_rows=first)
    if config.row_in == "registers":
        yield from _part_of_a_block(config) if config.threads_per_row <= 32 else _blocks(config, case.rows, target)


def _part_of_a_block(config: NormConfig) -> Iterator[tuple[str, NormConfig]]:
    for rows in (config.rows_per_block // 2, config.rows_per_block * 2):
        if 32 <= rows * config.threads_per_row <= 512:
            yield f"{rows} rows a block", replace(config, rows_per_block=rows, exact=False)


def _blocks(config: NormConfig, rows: int, target: tuning.Target) -> Iterator[tuple[str, NormConfig]]:
    """A row by other numbers of threads, blocks and vectors a thread; its weight loaded earlier or later."""
    if config.cluster == 1:
        for early in dict.fromkeys((0, config.vectors_per_thread // 2, config.vectors_per_thread)):
            yield f"{early} weights early", replace(config, early_weights=early)
    tiles = config.warps * config.tiles_per_warp * config.cluster
    clusters = (config.cluster // 2, config.cluster, config.cluster * 2, *((4, 8) if rows <= 2 * target.processors else ()))
    for cluster, held in product(dict.fromkeys(clusters), (1, 2, 4)):
        each = held // config.vectors_per_lane
        warps = -(-tiles // (each * cluster)) if each and cluster else 0
        if not (2 <= warps <= tuning.threshold("warps_of_a_block") and each * cluster <= 32):
            continue
        two = cluster > 1 and config.blocks_per_processor > 1 and warps <= tuning.threshold("cluster_warps")
        yield (
            f"{cluster} x {warps} warps of {held} vectors",
            replace(
                config,
                cluster=cluster,
                persistent=cluster > 1 and rows * cluster > target.processors,
                threads_per_row=32 * warps,
                tiles_per_warp=each,
                blocks_per_processor=2 if two else 1,
                exact=config.exact and warps * each * cluster == tiles,
                early_weights=min(config.early_weights, held) if cluster == 1 else 0,
            ),
        )


def _of_a_gate(config: GatedConfig) -> Iterator[tuple[str, GatedConfig]]:
    for threads in (32, 64, 128, 256, 512):
        for vectors in (1, 2):
            yield f"{threads} threads x {vectors}", replace(config, lanes=threads, rows=1, vectors=vectors, exact=False)
    yield "no dependent launch", replace(config, pdl=False)


# --- measuring ----------------------------------------------------------------------------------------------------------


def compile_all(kernels: Sequence[Kernel], cc: tuple[int, int]) -> None:
    """Fills the disk cache from as many processes as there are cores."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(partial(_compile, cc=cc), list(dict.fromkeys(kernels))))


def _compile(kernel: Kernel, cc: tuple[int, int]) -> None:
    with suppress(Exception):  # what can't be built is left out where it is measured, with the reason
        machine_code(kernel, cc)


@dataclass(slots=True)
class _Timed:
    """A variant captured: its graph, and microseconds a call."""

    config: Config
    graph: Any
    samples: list[float]


def measure(case: Case, timer: GraphTimer, device: torch.device) -> dict[str, Any]:
    """Times the variants of one point, in turns."""
    target = launch.target(device.index or 0)
    kernel, plan = choice(case, target), plan_of(case)
    sets = BufferSets(case, shapes.calls(case, shapes.pool_bytes(timer.free_bytes(), 2)), device)
    # One buffer a call for every variant, since all of them write the same bits.
    size = (0, 0) if case.operator.mutated else (case.rows, case.width)
    outputs = [torch.empty(size, dtype=sets.first["input"].dtype, device=device) for _ in range(sets.count)]
    found: dict[str, _Timed] = {}
    first: torch.Tensor | None = None
    for name, config in variants(kernel, case, target).items():
        try:
            if not _resident(Kernel(kernel.operation, config), plan, device):
                continue
        except Exception as error:  # a variant that ptxas or the driver refuses; the chosen form is none of them
            if name == CHOSEN:
                raise
            click.echo(f"{case}: {name} left out: {error}")
            continue
        prepared = launch.Prepared(replace(plan, config=config), device.index or 0, None)
        calls = [partial(_run, prepared, case, sets.tensors(i), outputs[i]) for i in range(sets.count)]
        sets.refresh()
        graph = timer.capture(calls)
        timer.launch(graph, sets.refresh)
        if first is None:
            first = graph.outputs[-1].clone()
        elif not torch.equal(graph.outputs[-1], first):
            raise click.ClickException(f"{case}: {name} computes other bits than the chosen form")
        found[name] = _Timed(config, graph, [])
    _take_turns(found, sets, timer, ROUNDS)
    ranked = sorted(found, key=lambda name: median(found[name].samples))
    finalists = {name: found[name] for name in dict.fromkeys((CHOSEN, *ranked[:FINALISTS]))}
    for each in finalists.values():
        each.samples.clear()
    _take_turns(finalists, sets, timer, FINAL_ROUNDS)
    times = {name: round(median(each.samples), 4) for name, each in found.items()}
    best = min(times, key=times.__getitem__)
    ratio = times[CHOSEN] / times[best]
    click.echo(f"{case}: chosen {times[CHOSEN]:.3f} us, the fastest of {len(times)} {times[best]:.3f} ({ratio:.3f}): {best}")
    own = asdict(kernel.config)
    entries = {
        name: {"us": times[name], "config": {k: v for k, v in asdict(each.config).items() if name == CHOSEN or v != own[k]}}
        for name, each in found.items()
    }
    return {**head(case), "calls": sets.count, "chosen": CHOSEN, "variants": entries}


def _take_turns(found: Mapping[str, _Timed], sets: BufferSets, timer: GraphTimer, rounds: int) -> None:
    timer.wake()
    for order in shapes.turns(list(found), rounds):
        for name in order:
            seconds = timer.turn(found[name].graph, LAUNCHES, sets.refresh)
            found[name].samples += [each / sets.count * 1e6 for each in seconds]


def _resident(kernel: Kernel, plan: Plan, device: torch.device) -> bool:
    """Whether the GPU can hold a cluster of the kernel at all. Loads it; whatever compiling and loading raise."""
    number = device.index or 0
    function, (_, shared) = launch.load(number, kernel), plan.shape(kernel)
    if not kernel.config.persistent:
        return True
    return launch.resident_grid(number, function, kernel.config, plan.rows, shared)[0] > 0


def _run(prepared: launch.Prepared, case: Case, tensors: Mapping[str, torch.Tensor], output: torch.Tensor) -> torch.Tensor:
    """One call in the kernel's own order of addresses; what holds the result."""
    given = addresses(case, tensors, output)
    output = tensors["input"] if case.operator.mutated else output
    device = output.get_device()
    prepared.launch(given, launch.alignment_of(given), torch._C._cuda_getCurrentRawStream(device))
    return output


# --- what a result says of the choices of today -------------------------------------------------------------------------


def held_to(document: Mapping[str, Any], target: tuning.Target) -> list[str]:
    """A sentence for each point at which today's choice was not measured, or was more than `SLACK` slower than the fastest."""
    wrong = []
    for point in document["points"]:
        case = timed(point["op"], point["dtype"], point["rows"], point["width"])
        times = {name: each["us"] for name, each in point["variants"].items()}
        mine, best = measured_choice(point, target), min(times, key=times.__getitem__)
        if mine is None:
            wrong.append(f"{case}: today's choice is none of the {len(times)} variants measured; run benchmarks/tune.py")
        elif times[mine] > (1 + SLACK) * times[best]:
            wrong.append(f"{case}: {mine} takes {times[mine] / times[best]:.3f} of the time of {best}")
    return wrong


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--op", "ops", multiple=True, help="Operators.  [default: all that the points have]")
@click.option("--shapes", "at", default="", help="Rows x width.  [default: the benchmark's, and the tuning table's]")
def main(file: Path, ops: tuple[str, ...], at: str) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    asked = points(ops, shapes.parse(at) if at else ())
    target = launch.target(device.index)
    kernels = [(choice(case, target), case) for case in asked]
    built = [Kernel(k.operation, config) for k, case in kernels for config in variants(k, case, target).values()]
    click.echo(f"{len(asked)} points, {len(set(built))} kernels")
    compile_all(built, torch.cuda.get_device_capability(device))
    timer = GraphTimer(device)
    timer.wake()
    found = {**conditions.head(SCHEMA, " ".join(sys.argv), device), "points": []}
    for case in asked:
        found["points"].append(measure(case, timer, device))
        jsonl.write(file, found, PARTS)
        timer.release()
    for said in held_to(found, target):
        click.echo(said)


if __name__ == "__main__":
    main()

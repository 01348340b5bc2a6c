"""Which kernel a call gets. The summation tree depends on the width alone; threads, blocks and where the row waits are free.

The choices were measured on an H200: benchmarks/results/tuning-h200.json (made by benchmarks/tune.py) and, for what was tried on
the way, tuning-sweeps-h200.json, of earlier forms of the kernels. The figures beside them are microseconds of bf16
``fused_add_rmsnorm`` unless they say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .arrays import ITEMSIZE
from .gated import GatedSpec
from .reduction import MAX_SEGMENTS, RowTree, row_tree
from .rmsnorm import NormSpec

SHARED_STATIC = 4 * MAX_SEGMENTS  # bytes of shared memory that a norm kernel always has


@dataclass(frozen=True, slots=True)
class Target:
    """What is compiled for. ``shared_bytes``: what one block may use; ``processors``: the number of multiprocessors."""

    name: str
    shared_bytes: int
    processors: int
    clusters: bool = False
    pdl: bool = False
    bulk_prefetch: bool = False


REPLAY = Target("replay", shared_bytes=227 * 1024, processors=1)

# Held in registers, a thread's share of the row costs 8 registers a leaf: 4 leaves with 1024 threads fit the 64 there are.
MOST_LEAVES = 4
MOST_WARPS = 32

# Rows of fewer bytes are not worth one prefetch instruction each: at 65536 x 128 it cost 41 µs in place of 17.5.
LEAST_PREFETCH = 2048
# How far ahead rows are called into L2: what memory delivers in its own latency, and not so much more that L2 loses it again.
AHEAD_BYTES = 3 << 20


def access_bytes(leaf: int, itemsize: int, *positions: int) -> int:
    """The widest access (2, 4, 8 or 16 bytes) that divides a leaf and every address and stride in ``positions`` (bytes)."""
    access = min(16, leaf * itemsize)
    while any(p % access for p in positions):
        access //= 2
    return access


def norm_spec(
    width: int,
    rows: int,
    target: Target,
    *,
    adds_residual: bool,
    storage: str,
    weight: str,
    access: int,
    weight_access: int,
    rounds_sum: bool = False,
    rounds_norm: bool = False,
    weight_bias: float | None = 0.0,
    pdl: bool = False,
) -> NormSpec:
    """The norm kernel for ``rows`` rows of ``width`` on ``target``."""
    tree = row_tree(width, ITEMSIZE[storage])
    workers = _workers(tree, rows, target)
    resident = -(-rows // workers["rows"]) * workers.get("cluster", 1) <= 2 * target.processors
    whole_runs = target.bulk_prefetch and access == 16 and weight_access == 16
    worth_it = whole_runs and width * ITEMSIZE[storage] >= LEAST_PREFETCH and workers["row_in"] == "registers"
    return NormSpec(
        adds_residual=adds_residual,
        storage=storage,
        weight=weight,
        rounds_sum=rounds_sum,
        rounds_norm=rounds_norm,
        weight_bias=weight_bias,
        leaf=tree.leaf,
        chain=tree.chain,
        access=access,
        weight_access=weight_access,
        pdl=pdl,
        release_first=pdl and resident,
        prefetch=pdl and resident and worth_it,
        ahead=_rows_ahead(width * ITEMSIZE[storage], adds_residual, workers.get("cluster", 1))
        if worth_it and not resident
        else 0,
        **workers,
    )


def _rows_ahead(width_bytes: int, adds_residual: bool, cluster: int) -> int:
    """How many rows on the next one to be called into L2 lies. Clusters: 33 rows took 1162 where 12 took 1179 (8192 x 65536)
    and 598 where 6 took 609 (2048 x 131072); at 512 x 262144 none was best."""
    if cluster > 1:
        return 33 if width_bytes <= 262144 else 0
    return max(1, AHEAD_BYTES // (width_bytes * (2 if adds_residual else 1)))


def _workers(tree: RowTree, rows: int, target: Target) -> dict[str, Any]:
    """Who works on a row, and where it waits for its sum."""
    if target == REPLAY:
        return _replay_workers(tree)
    if tree.segments <= (4 if tree.leaf == 1 else 2):
        return _part_of_a_block(tree, rows)
    few = rows <= 2 * target.processors
    # Wide rows: 8192 x 65536 1186 (clusters of 2) and 1194 (of 4), 2048 x 131072 598 (of 8) and 641 (of 4). Clusters that stay
    # and keep the weight in shared memory were slower: 1190 and 693.
    for cluster in (1, 2, 8) if target.clusters else (1,):
        for partials in (1, 2, 4) if few else (2, 1, 4):
            warps = -(-tree.segments // (partials * cluster))
            if warps <= MOST_WARPS and partials * tree.chain <= MOST_LEAVES:
                held = partials * tree.chain
                covered = tree.leaves == tree.segments * 32 * tree.chain == warps * cluster * held * 32
                return {
                    "row_in": "registers",
                    "warps": max(2, warps),
                    "lanes": 32,
                    "rows": 1,
                    "partials": partials,
                    "exact": covered and warps >= 2,
                    "early_weight": held == 1 or (held == 2 and warps < MOST_WARPS),
                    "cluster": cluster,
                }
    return _streamed(tree, target, warps=16)


def _part_of_a_block(tree: RowTree, rows: int) -> dict[str, Any]:
    """Short rows: a warp or a part of one for each, no barrier. (At 1024 two warps are faster: rmsnorm 17.6 against 19.0.)"""
    partials = {1: 1, 2: 2}.get(tree.segments, 4)
    lanes = 32 if tree.segments > 1 else min(32, 1 << (tree.leaves - 1).bit_length())
    count = (256 if tree.leaf == 1 else 128) // lanes  # 8192 x 111: 4.10 with 8 rows a block, 4.38 with 4
    exact = tree.leaves == lanes * partials and rows % count == 0
    return {"row_in": "registers", "warps": 1, "lanes": lanes, "rows": count, "partials": partials, "exact": exact}


def _streamed(tree: RowTree, target: Target, warps: int) -> dict[str, Any]:
    """Rows that registers can't hold: in shared memory, or read twice."""
    fits = 4 * (tree.width + warps * 32 * tree.leaf * tree.chain * 2) + SHARED_STATIC <= target.shared_bytes
    place = "shared" if fits else "memory"
    partials = 2 if tree.chain * tree.leaf <= 8 else 1
    return {"row_in": place, "warps": warps, "lanes": 32, "rows": 1, "partials": partials, "exact": False}


def _replay_workers(tree: RowTree) -> dict[str, Any]:
    """On the CPU a row costs what its threads cost: as few as can hold it. Rows of one leaf size share a kernel."""
    if tree.chain > 1 or tree.segments > 4 * MOST_WARPS:
        return _streamed(tree, REPLAY, warps=4)
    warps = -(-tree.segments // 4)
    return {"row_in": "registers", "warps": warps, "lanes": 32, "rows": 1, "partials": 4, "exact": False}


def norm_grid(spec: NormSpec, rows: int) -> tuple[int, int, int]:
    """Blocks of the launch, those of a cluster counted apart."""
    return (-(-rows // spec.rows) * spec.cluster, 1, 1)


def dynamic_shared_bytes(spec: NormSpec, width: int) -> int:
    """What a row kept in shared memory takes, in whole rounds of leaves."""
    if spec.row_in != "shared":
        return 0
    round_ = spec.partials * spec.chain * spec.warps * 32 * spec.leaf
    return 4 * round_ * -(-width // round_)


def gated_spec(
    width: int,
    rows: int,
    target: Target,
    *,
    activation: str,
    storage: str,
    access: int,
    rounds_activation: bool = False,
    pdl: bool = False,
) -> GatedSpec:
    """The gated kernel for ``rows`` rows of output width ``width`` on ``target``."""
    leaf = row_tree(width, ITEMSIZE[storage]).leaf
    leaves = width // leaf
    threads, vectors = _gated_threads(leaves * rows, target)
    lanes = 32 if target == REPLAY else min(threads, 1 << (leaves - 1).bit_length())
    count = threads // lanes
    exact = target != REPLAY and leaves % (lanes * vectors) == 0 and rows % count == 0
    return GatedSpec(
        activation=activation,
        storage=storage,
        rounds_activation=rounds_activation,
        leaf=leaf,
        access=access,
        lanes=lanes,
        rows=count,
        vectors=vectors,
        exact=exact,
        pdl=pdl,
    )


def _gated_threads(leaves: int, target: Target) -> tuple[int, int]:
    """Threads of a block and leaves of a thread, for ``leaves`` in all.

    silu_and_mul of 14336: 1 row 1.14 (64, 1); 16 rows 1.64 (64, 1) and 1.96 (128, 2); 128 rows 3.91 (128, 2) and 4.27 (128, 1);
    4096 rows 82.5 (128, 2) and 85 (128, 1).
    """
    if target == REPLAY:
        return 32, 1
    if leaves <= 512 * target.processors:
        return 64, 1
    return 128, 2


def gated_grid(spec: GatedSpec, rows: int, width: int) -> tuple[int, int, int]:
    """(column blocks, row blocks, 1); rows beyond the grid's limit are taken in a loop."""
    leaves = width // spec.leaf
    return (-(-leaves // (spec.lanes * spec.vectors)), min(65535, -(-rows // spec.rows)), 1)

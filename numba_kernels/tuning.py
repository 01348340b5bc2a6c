"""Which kernel a call gets. The summation tree depends on the width alone; threads, blocks and where the row waits are free.

The choices were measured on an H200: benchmarks/results/tuning-h200.json (made by benchmarks/tune.py) and, for clusters and what
else was tried on the way, tuning-sweeps-h200.json, much of it with earlier forms. The figures beside them are microseconds of
bf16 ``fused_add_rmsnorm`` unless they say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from .arrays import ITEMSIZE
from .gated import GatedSpec
from .reduction import MAX_SEGMENTS, RowTree, row_tree
from .rmsnorm import NormSpec

SHARED_STATIC = 8 * MAX_SEGMENTS + 48  # bytes of shared memory that a norm kernel always has


@dataclass(frozen=True, slots=True)
class Target:
    """What is compiled for. ``shared_bytes``: what one block may use; ``processors``: the number of multiprocessors."""

    name: str
    shared_bytes: int
    processors: int
    clusters: int = 1  # blocks of the largest cluster
    pdl: bool = False
    bulk_prefetch: bool = False


REPLAY = Target("replay", shared_bytes=227 * 1024, processors=1)

# Held in registers, a thread's share of the row costs 8 registers a leaf of 16 bytes: 4 with 1024 threads fit the 64 there are.
MOST_LEAVES = 4
MOST_WARPS = 32

# How many blocks share a row too wide for that; the first that can. Clusters stay, for it takes long to start one, and draw their
# rows: 8192 x 65536 by two blocks a row 1029 if they do, 1067 if shares of falling size are given out and 1088 with equal ones
# (multiprocessors are not equally fast, and memory is slower where rows aren't read in their order), and 1087 if each row starts
# its own cluster.
CLUSTERS = (2, 4, 8, 16)
# Blocks of half the threads a multiprocessor has room for, so that it works on two rows: 8192 x 65536 1003 and, by 4 larger
# blocks, 1008; 512 x 262144 258 and 262; rmsnorm 256 and 269 at 2048 x 131072, 504 and 511 at 8192 x 65536. Where no cluster is
# large enough for that, larger blocks. 16 such blocks only where 8 can't: 2048 x 131072 507 by 8 with 4 leaves, 508 by 16 with 2.
CLUSTER_WARPS = 16
# With a residual, 2 leaves of a thread rather than 4, the same bytes on their way as 4 without: 8192 x 65536 1003 and, by half as
# many blocks, 1014; rmsnorm 575 and 504.
# Clusters pay from so many bytes of x on where one block could hold the row: 16384 x 32768 1000 and 1010, x 24576 751 and 760.
CLUSTERS_FROM = 128 << 20
# From rows of more bytes on, few of them take 4 blocks or more, with a leaf or two of a thread, while each block has a
# multiprocessor: 1 x 16384 1.78 by 4 blocks and 2.44 by one, 32 x 16384 2.70 and 2.86, 1 x 65536 2.16 by 16 and 2.42 by 8,
# 1 x 131072 2.60 and 3.38; but 64 x 16384 4.24 and 3.44, 1 x 8192 1.79 and 1.74.
SHARED_FROM, SHARED_LEAVES = 16 << 10, 2

# Rows of fewer bytes are not worth one prefetch instruction each: at 65536 x 128 it cost 41 µs in place of 17.5.
LEAST_PREFETCH = 2048
# How far ahead rows are called into L2: what memory delivers in its own latency, and not so much more that L2 loses it again.
# Without a residual rmsnorm 16384 x 4096 64.2 with 2 MiB, 64.3 with 3 and 64.6 with 4; with one 1024 x 16384 32.9 with 4 and 33.1
# with 3; by clusters 8192 x 65536 998 with 5.25, 1001 with 8 and 1041 with 4, 2048 x 131072 505.7 with 5 and 507.0 with 6.
AHEAD_BYTES, CLUSTERS_AHEAD_BYTES = {False: 2 << 20, True: 4 << 20}, 21 << 18
# From how many bytes of x on: rmsnorm 16384 x 4096 64.2 with and 64.7 without, but 4096 x 4096 17.6 and 17.3; with a residual
# 4096 x 4096 33.0 and 34.5, 1024 x 4096 9.6 and 9.1.
AHEAD_FROM = {False: 64 << 20, True: 16 << 20}
# The first rows: up to so many bytes a multiprocessor, or half as many where memory is busy for short. They aren't called ahead,
# for they are on their way already (1024 x 16384 33.9, and 34.2 if they are); but their residual is called while the predecessor
# ends: 1024 x 16384 33.0 and, without, 33.9, 2048 x 8192 32.4 and 33.2, 512 x 8192 9.2 and 9.7. That of all rows would cost more
# than it brings: 34.2, 33.5, 10.0.
FIRST_BYTES = 64 << 10


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
    size = rows * width * ITEMSIZE[storage]
    large = size >= AHEAD_FROM[adds_residual]
    workers = _workers(tree, rows, target, adds_residual, ITEMSIZE[storage], ITEMSIZE[weight])
    cluster, held = workers.get("cluster", 1), workers["row_in"] == "registers"
    few = -(-rows // workers["rows"]) * cluster <= 2 * target.processors
    runs = target.bulk_prefetch and access == 16 and weight_access == 16 and held and width * ITEMSIZE[storage] >= LEAST_PREFETCH
    release = "start" if few or (tree.leaf == 1 and workers["warps"] == 1) else "loaded"
    row_bytes = width * ITEMSIZE[storage] * (2 if adds_residual else 1)
    ahead_bytes = CLUSTERS_AHEAD_BYTES if cluster > 1 else AHEAD_BYTES[adds_residual]
    ahead = max(1, ahead_bytes // row_bytes) if large and runs else 0
    # The weight alone isn't worth it: rmsnorm 2048 x 8192 17.8 and 17.4.
    prefetch = pdl and runs and (few or adds_residual)
    first_bytes = target.processors * (FIRST_BYTES if large else FIRST_BYTES // 2)
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
        release=release if pdl else "end",
        prefetch=prefetch,
        ahead=ahead,
        at_once=_power(first_bytes // row_bytes) if ahead or (prefetch and not few) else 0,
        **workers,
    )


def _power(rows: int) -> int:
    """The largest power of two up to ``rows``, so that not every width has a kernel of its own; 1 at least."""
    return 1 << max(0, rows.bit_length() - 1)


def _leaves(tree: RowTree, itemsize: int, whole: int) -> int:
    """So many leaves of 16 bytes, or what is as much of narrower ones, 8 in all at most."""
    return min(8, whole * 16 // (tree.leaf * itemsize))


def _workers(
    tree: RowTree, rows: int, target: Target, adds_residual: bool, itemsize: int, weight_itemsize: int
) -> dict[str, Any]:
    """Who works on a row, and where it waits for its sum."""
    if target == REPLAY:
        return _replay_workers(tree)
    size = rows * tree.width * itemsize
    few, large = rows <= 2 * target.processors, size >= AHEAD_FROM[adds_residual]
    held = _leaves(tree, itemsize, MOST_LEAVES)
    on_their_way = _leaves(tree, itemsize, 2) if adds_residual else held
    shares = range(1, SHARED_LEAVES // tree.chain + 1) if size > SHARED_FROM * rows else ()
    for partials, cluster in product(shares, CLUSTERS[1:]):
        warps = -(-tree.segments // (partials * cluster))
        if warps <= CLUSTER_WARPS and cluster <= target.clusters and rows * cluster <= target.processors:
            return _cluster(tree, warps, partials, cluster)
    # One warp a row of 1024: rmsnorm 17.3 against 20.9 with two; but 16 rows 1.23 against 1.20, and fused_add_rmsnorm 33.2
    # against 32.9.
    if tree.segments <= (2 if tree.leaf > 1 and (adds_residual or few) else 4):
        return _part_of_a_block(tree, rows, target)
    # Many rows without looking ahead want 4 leaves a thread: rmsnorm 2048 x 8192 17.7 with 4 and 17.8 with 2, 1024 x 16384 18.0
    # and 18.3; fused_add_rmsnorm 1024 x 4096 9.1 with 4 and 9.5 with 1. With it, as few as a block can: 2048 x 8192 33.1 with 1
    # and 33.4 with 2, 1024 x 16384 34.0 with 2 and 34.3 with 4.
    of_a_block = on_their_way if target.clusters > 1 and size >= CLUSTERS_FROM else held
    for partials in (1, 2, 4, 8) if few or (adds_residual and large) else (4, 2, 1, 8):
        warps, leaves = -(-tree.segments // partials), partials * tree.chain
        if warps <= MOST_WARPS and leaves <= of_a_block:
            early = 0 if few else _early(warps, leaves)
            exact = _covered(tree, warps, partials, 1) and warps >= 2 and (adds_residual or early < 4)
            return {**_held(max(2, warps), partials, exact), "early": early}
    for most, sizes, leaves in product((CLUSTER_WARPS, MOST_WARPS), (CLUSTERS[:-1], CLUSTERS[-1:]), (on_their_way, held)):
        partials = leaves // tree.chain
        for cluster in sizes if partials else ():
            warps = -(-tree.segments // (partials * cluster))
            weight_bytes = weight_itemsize * partials * tree.chain * tree.leaf * warps * 32
            fits = warps <= most and weight_bytes + SHARED_STATIC <= target.shared_bytes * most // MOST_WARPS
            if fits and cluster <= min(target.clusters, 32 // partials) and tree.chain <= MOST_LEAVES:
                return {**_cluster(tree, warps, partials, cluster), "blocks": MOST_WARPS // most}
    return _streamed(tree, target, warps=16)


def _held(warps: int, partials: int, exact: bool) -> dict[str, Any]:
    return {"row_in": "registers", "warps": warps, "lanes": 32, "rows": 1, "partials": partials, "exact": exact}


def _cluster(tree: RowTree, warps: int, partials: int, cluster: int) -> dict[str, Any]:
    exact = _covered(tree, warps, partials, cluster)
    return {**_held(warps, partials, exact), "early": 0, "cluster": cluster}


def _covered(tree: RowTree, warps: int, partials: int, cluster: int) -> bool:
    """Whether every leaf that a thread could have lies inside the row."""
    return tree.leaves == tree.segments * 32 * tree.chain and tree.segments == warps * partials * cluster


def _early(warps: int, held: int) -> int:
    """How many leaves' weights come before the sum: all, unless the registers for them cost a block of the multiprocessor.

    1024 x 16384: fused_add_rmsnorm none of 2 34.0, all 34.3; rmsnorm 2 of 4 18.2, none 18.6, all 25.0. Few rows (128 x 4096):
    none 2.54, all 2.61; rmsnorm none 1.95, all 2.30.
    """
    if held > 1 and warps > 16:
        return 0
    return held if warps <= 8 or held <= 2 else 2


def _part_of_a_block(tree: RowTree, rows: int, target: Target) -> dict[str, Any]:
    """Short rows: a warp or a part of one for each, no barrier; fewer of them a block while that busies more processors."""
    partials = {1: 1, 2: 2}.get(tree.segments, 4)
    lanes = 32 if tree.segments > 1 else min(32, 1 << (tree.leaves - 1).bit_length())
    # 8192 x 111: 3.41 with 16 rows a block, 3.60 with 8; rmsnorm 65536 x 128: 9.17 with 16, 9.6 with 8.
    count = (512 if tree.leaf == 1 else 256) // lanes
    while count * lanes > 32 and rows < count * target.processors:
        count //= 2
    # Four leaves are not called exact where they are: with a branch around each, stores begin earlier (16384 x 1024 17.5 against
    # 18.0; rmsnorm 2048 x 8192, above, 17.5 against 17.8).
    exact = tree.leaves == lanes * partials and rows % count == 0 and partials < 4
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
    """Blocks of the launch, those of a cluster counted apart, before clusters that draw are limited to what the GPU holds."""
    return (-(-rows // spec.rows) * spec.cluster, 1, 1)


def dynamic_shared_bytes(spec: NormSpec, width: int) -> int:
    """What a row kept in shared memory takes, in whole rounds of leaves, or the weight, where a block has row after row."""
    if spec.cluster > 1:
        return ITEMSIZE[spec.weight] * spec.partials * spec.chain * spec.leaf * spec.threads
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

    silu_and_mul of 14336: 16 rows 1.49 (64, 1), 1.55 (256, 1) and 1.89 (128, 2); 128 rows 3.93 (256, 1), 4.34 (128, 2) and 4.93
    (64, 1); 4096 rows 80.9 (256, 1), 81.4 (128, 2) and 139 (64, 1).
    """
    if target == REPLAY:
        return 32, 1
    if leaves <= 512 * target.processors:
        return 64, 1
    return 256, 1


def gated_grid(spec: GatedSpec, rows: int, width: int) -> tuple[int, int, int]:
    """(column blocks, row blocks, 1); rows beyond the grid's limit are taken in a loop."""
    leaves = width // spec.leaf
    return (-(-leaves // (spec.lanes * spec.vectors)), min(65535, -(-rows // spec.rows)), 1)

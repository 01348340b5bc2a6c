"""Which configuration a call gets. The summation tree depends on the width alone; who adds it and where the row waits are free.

The thresholds, and what was measured for each on an H200, are in tuning_table.toml. benchmarks/tune.py measures them again.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from .formats import FORMATS
from .kernels.config import GatedConfig, GatedOperation, NormConfig, NormOperation
from .kernels.tree import MAX_TILES, RowTree, row_tree

SHARED_STATIC = 8 * MAX_TILES + 48  # bytes of shared memory that a norm kernel always has


@dataclass(frozen=True, slots=True)
class Target:
    """What is compiled for. ``shared_bytes``: what one block may use; ``processors``: the number of multiprocessors."""

    name: str
    shared_bytes: int
    processors: int
    clusters: int = 1  # blocks of the largest cluster
    pdl: bool = False
    bulk_prefetch: bool = False

    @classmethod
    def of(cls, cc: tuple[int, int], shared_bytes: int, processors: int) -> Target:
        """A GPU by its compute capability and sizes."""
        major, minor = cc
        clusters = {9: 16, 10: 16}.get(major, 8 if major > 10 else 1)
        return cls(f"sm_{major}{minor}", shared_bytes, processors, clusters, pdl=major >= 9, bulk_prefetch=major >= 9)


EMULATOR = Target("emulator", shared_bytes=227 * 1024, processors=1)


@cache
def table() -> dict[str, dict[str, Any]]:
    """The thresholds by name: ``value``, ``unit``, ``why`` and ``measured`` (microseconds by call and choice)."""
    return tomllib.loads(Path(__file__).with_name("tuning_table.toml").read_text(encoding="utf-8"))


def threshold(name: str, case: str | None = None) -> Any:
    """The value of a threshold, or of one of its cases."""
    value = table()[name]["value"]
    return value if case is None else value[case]


def access_bytes(vector: int, itemsize: int, *positions: int) -> int:
    """The widest access (2, 4, 8 or 16 bytes) that divides a vector and every address and stride in ``positions`` (bytes)."""
    access = min(16, vector * itemsize)
    while any(p % access for p in positions):
        access //= 2
    return access


@dataclass(frozen=True, slots=True)
class Call:
    """What the choices for a norm depend on."""

    tree: RowTree
    rows: int
    target: Target
    adds_residual: bool
    itemsize: int
    weight_itemsize: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of x."""
        return self.tree.width * self.itemsize

    @property
    def few(self) -> bool:
        """Whether all rows are worked on at once."""
        return self.rows <= threshold("few_rows") * self.target.processors

    @property
    def case(self) -> str:
        """Which of a threshold's cases this is."""
        return "residual" if self.adds_residual else "alone"

    @property
    def large(self) -> bool:
        """Whether later rows are prefetched."""
        return self.rows * self.row_bytes >= threshold("large_bytes", self.case)

    def vectors(self, whole: int) -> int:
        """So many vectors of 16 bytes, or what is as much of narrower ones, 8 in all at most."""
        return min(8, whole * 16 // (self.tree.vector * self.itemsize))


def norm_config(
    operation: NormOperation, width: int, rows: int, target: Target, *, access: int, weight_access: int, pdl: bool = False
) -> NormConfig:
    """The configuration for ``rows`` rows of ``width`` on ``target``, by accesses of so many bytes."""
    call = call_of(operation, width, rows, target)
    return with_prefetch(call, replace(_form(call), access=access, weight_access=weight_access, pdl=pdl))


def call_of(operation: NormOperation, width: int, rows: int, target: Target) -> Call:
    """What the choices for a call depend on."""
    itemsize, weight_itemsize = FORMATS[operation.storage].itemsize, FORMATS[operation.weight].itemsize
    return Call(row_tree(width, itemsize), rows, target, operation.adds_residual, itemsize, weight_itemsize)


def with_prefetch(call: Call, config: NormConfig) -> NormConfig:
    """What is prefetched into L2, and when the next kernel may start."""
    target, aligned = call.target, config.access == 16 and config.weight_access == 16
    blocks = -(-call.rows // config.rows_per_block) * config.cluster
    few = blocks <= threshold("few_rows") * target.processors
    long = config.row_in == "registers" and call.row_bytes >= threshold("least_prefetch_bytes")
    runs = target.bulk_prefetch and aligned and long
    read_bytes = call.row_bytes * (2 if call.adds_residual else 1)
    ahead_bytes = threshold("cluster_ahead_bytes") if config.cluster > 1 else threshold("ahead_bytes", call.case)
    ahead = max(1, ahead_bytes // read_bytes) if call.large and runs else 0
    prefetch = config.pdl and runs and (few or call.adds_residual or threshold("weight_alone"))
    first_bytes = target.processors * threshold("first_rows_bytes", "large" if call.large else "small")
    at_start = not _is_held_back(call, blocks * config.threads) if few else _releases_early(call)
    at_start = at_start or (config.vector == 1 and config.warps == 1)
    held_back = _rows_held_back(call, config) if few else (0, 0)
    release = "rows" if any(held_back) else "start" if at_start else "loaded"
    return replace(
        config,
        release=release if config.pdl else "end",
        held_back=held_back if config.pdl else (0, 0),
        prefetch_first=prefetch,
        prefetch_ahead=ahead,
        first_rows=_power(first_bytes // read_bytes) if ahead or (prefetch and not few) else 0,
    )


def _is_held_back(call: Call, threads: int) -> bool:
    """Whether the next kernel of few rows starts only when this one's rows are loaded."""
    beyond = not call.adds_residual and threads >= threshold("held_back", "alone")
    return _fits_twice(threads) or beyond


def _rows_held_back(call: Call, config: NormConfig) -> tuple[int, int]:
    """Few rows of which the next kernel is held back, from and below, where one kernel serves these and others; else zeros."""
    if not call.adds_residual or config.rows_per_block * config.cluster > 1:
        return (0, 0)
    least, most = (-(-threshold("held_back", end) // config.threads) for end in ("least", "most"))
    return (least, most) if least <= threshold("few_rows") * call.target.processors else (0, 0)


def _fits_twice(threads: int) -> bool:
    """Whether this call's threads and the next one's run side by side, and are enough to keep memory busy."""
    return threshold("held_back", "least") <= threads < threshold("held_back", "most")


def _releases_early(call: Call) -> bool:
    """Whether the next kernel of many rows may start at once all the same."""
    limits = threshold("released_at_once")
    short = limits["least_row"] <= call.row_bytes <= limits["most_row"]
    return call.adds_residual and short and call.rows * call.row_bytes >= limits["least"]


def _power(rows: int) -> int:
    """The largest power of two up to ``rows``, so that not every width has a kernel of its own; 1 at least."""
    return 1 << max(0, rows.bit_length() - 1)


# --- who works on a row, and where it waits for its sum -------------------------------------------------------------------


def _form(call: Call) -> NormConfig:
    """The first of: a cluster for each of few wide rows, a warp or a part of one, a block, a cluster, a block that streams."""
    if call.target == EMULATOR:
        return _emulated(call)
    return cluster_of_few_rows(call) or part_of_a_block(call) or block(call) or cluster_of_blocks(call) or streamed(call)


def _config(tree: RowTree, tiles_per_warp: int, threads_per_row: int, **options: Any) -> NormConfig:
    """A configuration whose accesses are to be set."""
    return NormConfig(tree.vector, tree.vectors_per_lane, tiles_per_warp, threads_per_row, access=0, weight_access=0, **options)


def cluster_of_few_rows(call: Call) -> NormConfig | None:
    """A wide row by several blocks, while each of them has a multiprocessor."""
    tree, target = call.tree, call.target
    shares = range(1, threshold("few_rows_cluster_vectors") // tree.vectors_per_lane + 1)
    for tiles, (cluster, most_warps, least_bytes, share) in product(shares, threshold("few_rows_clusters")):
        warps = -(-tree.tiles // (tiles * cluster))
        fits = warps <= most_warps and cluster <= target.clusters and call.row_bytes >= least_bytes
        if fits and call.rows * cluster <= share * target.processors:
            return _blocks_of_a_cluster(call, warps, tiles, cluster)
    return None


def part_of_a_block(call: Call) -> NormConfig | None:
    """Short rows: a warp or a part of one for each, no barrier; fewer of them a block while that busies more processors."""
    tree, rows = call.tree, call.rows
    scalar, limits = tree.vector == 1, threshold("tiles_of_a_warp_row")
    if tree.tiles > limits["scalar" if scalar else "few" if call.few else call.case]:
        return None
    tiles = {1: 1, 2: 2}.get(tree.tiles, 4)
    lanes = 32 if tree.tiles > 1 else min(32, 1 << (tree.vectors - 1).bit_length())
    count = threshold("threads_of_short_rows", "scalar" if scalar else "vector") // lanes
    while count * lanes > 32 and rows < count * call.target.processors:
        count //= 2
    exact = tree.vectors == lanes * tiles and rows % count == 0 and tiles < threshold("exact_warp_tiles")
    return _config(tree, tiles, lanes, rows_per_block=count, exact=exact, early_weights=4)


def block(call: Call) -> NormConfig | None:
    """A row in the registers of one block."""
    tree = call.tree
    wants_clusters = call.target.clusters > 1 and call.rows * call.row_bytes >= threshold("cluster_bytes")
    most = threshold("vectors_on_their_way", call.case) if wants_clusters else threshold("vectors_in_registers")
    order = threshold("tiles_of_a_block_row", "large" if call.few or (call.adds_residual and call.large) else "small")
    for tiles in order:
        warps, vectors = -(-tree.tiles // tiles), tiles * tree.vectors_per_lane
        if call.adds_residual and call.few and _leaves_rows_waiting(call, warps, vectors):
            continue
        if warps <= threshold("warps_of_a_block") and vectors <= call.vectors(most):
            early = _early_weights(call, warps, vectors)
            exact = _covered(tree, warps, tiles, 1) and warps >= 2 and (call.adds_residual or early < 4)
            return _config(tree, tiles, 32 * max(2, warps), exact=exact, early_weights=early)
    return None


def _leaves_rows_waiting(call: Call, warps: int, vectors: int) -> bool:
    """Whether some rows wait for a multiprocessor that has room for one such block, and for two with twice the vectors."""
    wide = vectors > 1 and warps > threshold("cluster_warps")
    return wide and call.rows > call.target.processors and vectors < threshold("vectors_in_registers")


def _early_weights(call: Call, warps: int, vectors: int) -> int:
    """How many vectors' weights come before the sum."""
    limits = threshold("early_weights")
    if call.few:
        early = warps <= limits["warps"] or _fits_twice(call.rows * 32 * warps) or (call.adds_residual and vectors == 1)
        return min(vectors, limits["vectors"]) if early else 0
    least, most = limits["none_of_bytes"]
    if call.adds_residual and call.row_bytes >= limits["none_of_bytes_from_row"] and least <= call.rows * call.row_bytes < most:
        return 0
    if vectors > 1 and warps > limits["none_above_warps"]:
        return 0
    return vectors if warps <= limits["warps"] or vectors <= limits["vectors"] else limits["limited"]


def cluster_of_blocks(call: Call) -> NormConfig | None:
    """A row by several blocks, of half the threads that a multiprocessor has room for, if a cluster is large enough for that."""
    tree, target, sizes = call.tree, call.target, threshold("cluster_sizes")
    whole, half, most_vectors = threshold("warps_of_a_block"), threshold("cluster_warps"), threshold("vectors_in_registers")
    shares = (call.vectors(threshold("vectors_on_their_way", call.case)), call.vectors(most_vectors))
    for most, clusters, vectors in product((half, whole), (sizes[:-1], sizes[-1:]), shares):
        tiles = vectors // tree.vectors_per_lane
        for cluster in clusters if tiles else ():
            warps = -(-tree.tiles // (tiles * cluster))
            weight_bytes = call.weight_itemsize * tiles * tree.vectors_per_lane * tree.vector * warps * 32
            fits = warps <= most and weight_bytes + SHARED_STATIC <= target.shared_bytes * most // whole
            if fits and cluster <= min(target.clusters, 32 // tiles) and tree.vectors_per_lane <= most_vectors:
                return replace(_blocks_of_a_cluster(call, warps, tiles, cluster), blocks_per_processor=whole // most)
    return None


def _blocks_of_a_cluster(call: Call, warps: int, tiles: int, cluster: int) -> NormConfig:
    """Where each row can have a cluster of its own at once, the clusters end with it and take no more rows from a counter."""
    exact = _covered(call.tree, warps, tiles, cluster)
    return _config(call.tree, tiles, 32 * warps, exact=exact, cluster=cluster, persistent=has_to_stay(call, cluster))


def has_to_stay(call: Call, cluster: int) -> bool:
    """Whether there are more rows than clusters at once, so that a cluster takes several."""
    return call.rows * cluster > call.target.processors


def _covered(tree: RowTree, warps: int, tiles: int, cluster: int) -> bool:
    """Whether every vector that a thread could have lies inside the row."""
    return tree.vectors == tree.tiles * 32 * tree.vectors_per_lane and tree.tiles == warps * tiles * cluster


def streamed(call: Call, warps: int | None = None) -> NormConfig:
    """Rows that registers can't hold: in shared memory, or read twice."""
    tree, warps = call.tree, warps or threshold("streamed_warps")
    slots = tree.width + warps * 32 * tree.vector * tree.vectors_per_lane * 2
    place = "shared" if 4 * slots + SHARED_STATIC <= call.target.shared_bytes else "memory"
    tiles = 2 if tree.vectors_per_lane * tree.vector <= 8 else 1
    return _config(tree, tiles, 32 * warps, row_in=place)


def _emulated(call: Call) -> NormConfig:
    """On the CPU a row costs what its threads cost, and each kernel a second to compile: one warp for few scalars or pairs, or
    fours; of wider vectors one kernel for each 4096 elements."""
    tree = call.tree
    if tree.vectors_per_lane > 1 or tree.tiles > 4 * threshold("warps_of_a_block"):
        return streamed(call, warps=4)
    step = 4 if tree.vector < 4 else 32 // tree.vector
    warps = 1 if tree.vector < 4 and tree.tiles <= 4 else step * -(-tree.tiles // (4 * step))
    return _config(tree, 4, 32 * warps, early_weights=4)


# --- gated activations ----------------------------------------------------------------------------------------------------


def gated_config(
    operation: GatedOperation, width: int, rows: int, target: Target, *, access: int, pdl: bool = False
) -> GatedConfig:
    """The configuration for ``rows`` rows of output width ``width`` on ``target``."""
    vector = row_tree(width, FORMATS[operation.storage].itemsize).vector
    vectors, emulated = width // vector, target == EMULATOR
    small = vectors * rows <= threshold("gated_small_vectors") * target.processors
    threads = 32 if emulated else threshold("gated_threads", "small" if small else "large")
    lanes = 32 if emulated else min(threads, 1 << (vectors - 1).bit_length())
    count = threads // lanes
    exact = not emulated and vectors % lanes == 0 and rows % count == 0
    return GatedConfig(vector=vector, access=access, lanes=lanes, rows=count, vectors=1, exact=exact, pdl=pdl)

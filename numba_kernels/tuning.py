"""Which kernel a call gets. The summation tree depends on the width alone; threads, blocks and where the row waits are free."""

from __future__ import annotations

from dataclasses import dataclass

from .arrays import ITEMSIZE
from .gated import GatedSpec
from .reduction import MAX_SEGMENTS, row_tree
from .rmsnorm import NormSpec

SHARED_STATIC = 4 * MAX_SEGMENTS  # bytes a norm kernel always uses
SHARED_PER_BLOCK = 227 * 1024  # what a block of sm_80's successors may opt in to; sm_90 and sm_100 have it, sm_80 has 163 KB


@dataclass(frozen=True, slots=True)
class Target:
    """What is compiled for. ``shared_bytes`` is what one block may use, ``processors`` the number of multiprocessors."""

    name: str
    shared_bytes: int
    processors: int
    clusters: bool
    pdl: bool


REPLAY = Target("replay", shared_bytes=SHARED_PER_BLOCK, processors=1, clusters=False, pdl=False)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


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
    weight_bias: float = 0.0,
    pdl: bool = False,
) -> NormSpec:
    """The norm kernel for ``rows`` rows of ``width`` on ``target``."""
    tree = row_tree(width, ITEMSIZE[storage])
    shape = _row_shape(tree.leaves, tree.segments, tree.chain, tree.leaf, rows, target)
    spec = NormSpec(
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
        **shape,
    )
    return spec


def _row_shape(leaves: int, segments: int, chain: int, leaf: int, rows: int, target: Target) -> dict:
    """Where the row waits and who works on it."""
    replay = target.name == "replay"
    full = leaves == segments * 32 * chain
    if segments <= 4 and chain == 1:  # a warp or less per row: no barrier, no shared memory
        partials = 4 if replay or segments > 2 else segments
        lanes = 32 if replay or segments > 1 else min(32, _power_of_two(leaves))
        count = 1 if replay else 128 // lanes
        exact = not replay and leaves == lanes * partials and rows % count == 0
        return {"row_in": "registers", "warps": 1, "lanes": lanes, "rows": count, "partials": partials, "exact": exact}
    partials = 4 if replay or segments > 64 else 2 if segments > 8 and rows > target.processors else 1
    if leaf * chain > 8 or (chain > 1 and partials > 2):
        partials = 1 if chain > 2 else 2
    warps = -(-segments // partials)
    cluster = 1
    while warps > 32 and target.clusters and cluster < 8:
        cluster *= 2
        warps = -(-segments // (partials * cluster))
    if warps <= 32 and chain * partials <= 4:
        exact = not replay and full and warps * cluster * partials == segments
        early = chain * partials <= 2
        return {
            "row_in": "registers",
            "warps": max(2, warps),
            "lanes": 32,
            "rows": 1,
            "partials": partials,
            "exact": exact,
            "early_weight": early,
            "cluster": cluster,
        }
    fits = leaves * leaf * 4 + SHARED_STATIC <= target.shared_bytes
    warps = 4 if replay else 16 if fits else 32
    return {
        "row_in": "shared" if fits else "memory",
        "warps": warps,
        "lanes": 32,
        "rows": 1,
        "partials": 1,
        "exact": False,
    }


def dynamic_shared_bytes(spec: NormSpec, width: int) -> int:
    return 4 * width if spec.row_in == "shared" else 0


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
    if target.name == "replay":
        lanes, count, vectors = 32, 1, 1
    else:
        lanes = min(128, _power_of_two(leaves))
        count, vectors = 128 // lanes, 1
    exact = target.name != "replay" and leaves % (lanes * vectors) == 0 and rows % count == 0
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


def norm_grid(spec: NormSpec, rows: int) -> tuple[int, int, int]:
    return (-(-rows // spec.rows) * spec.cluster, 1, 1)


def gated_grid(spec: GatedSpec, rows: int, width: int) -> tuple[int, int, int]:
    leaves = width // spec.leaf
    return (-(-leaves // (spec.lanes * spec.vectors)), min(65535, -(-rows // spec.rows)), 1)

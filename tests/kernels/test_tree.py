"""The summation tree: a function of the width alone, and the same bits whoever adds it up. On the CPU replay."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from numba_kernels import tuning
from numba_kernels.arrays import ITEMSIZE
from numba_kernels.compile import kernel_function
from numba_kernels.reduction import MAX_SEGMENTS, row_tree
from numba_kernels.replay import ReplayKernel

from .rows import bits, random

H200 = tuning.Target("sm_90", shared_bytes=227 * 1024, processors=132, clusters=16)


def spec_for(width, rows, dtype="bf16", target=H200, weight=None, *, adds_residual=True):
    leaf, weight = row_tree(width, ITEMSIZE[dtype]).leaf, weight or dtype
    accesses = {
        "access": tuning.access_bytes(leaf, ITEMSIZE[dtype], width * ITEMSIZE[dtype]),
        "weight_access": tuning.access_bytes(leaf, ITEMSIZE[weight]),
    }
    return tuning.norm_spec(width, rows, target, adds_residual=adds_residual, storage=dtype, weight=weight, **accesses)


@cache
def kernel_of(spec, check):
    """Compiled once: the full check's code is not kept on disk."""
    return ReplayKernel(kernel_function(spec), check=check)


def run(spec, x, residual, weight, check="fast", blocks=None, **options):
    """The kernel of ``spec`` on copies, by ``blocks`` if not by one for each row; its outputs' bits."""
    rows, width = x.shape
    x, residual = bits(x.copy()), bits(residual.copy())
    constants = [int(np.float32(value).view(np.uint32)) for value in (1 / width, 1e-6, 0)]
    arguments = (x.ravel(), residual.ravel(), bits(weight), x.ravel(), width, width, width, rows, width, *constants, 0)
    grid, shared = tuning.norm_grid(spec, rows), tuning.dynamic_shared_bytes(spec, width)
    grid = (blocks or grid[0], 1, 1)
    options.update(dynamic_shared_bytes=shared, cluster=spec.cluster)
    kernel_of(spec, check).launch(grid=grid, block=spec.threads, args=arguments, **options)
    return x, residual


@pytest.mark.parametrize("width", [1, 2, 3, 8, 111, 4096, 4097, 7168, 65536, 131072, 262144, 1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_a_tree_covers_its_row_and_fits_shared_memory(width, itemsize):
    tree = row_tree(width, itemsize)
    assert tree.leaf * tree.leaves == width
    assert tree.segments <= MAX_SEGMENTS
    assert (tree.segments - 1) * 32 * tree.chain < tree.leaves <= tree.segments * 32 * tree.chain


def fp32_rows(rows, width):
    """Input, residual and weight. fp32 output shows the last bit of the sum, where 16 bits would hide almost all of it."""
    return random((rows, width), "fp32"), random((rows, width), "fp32", 1), random((width,), "fp32", 2)


WORKERS = [
    {"warps": 16, "partials": 1},
    {"warps": 5, "partials": 4},
    {"warps": 4, "partials": 4, "exact": True, "early": 0},
    {"warps": 8, "partials": 2, "early": 1},
    {"access": 4, "weight_access": 8},
    {"warps": 2, "partials": 8, "early": 0, "exact": True},
    {"warps": 3, "partials": 8, "early": 0},
    {"row_in": "shared", "warps": 3, "partials": 2},
    {"row_in": "memory", "warps": 5, "partials": 1},
]


@pytest.mark.parametrize("workers", WORKERS, ids=str)
def test_a_row_has_the_same_bits_whoever_adds_it_up(workers):
    x, residual, weight = fp32_rows(16, 2048)
    spec = spec_for(2048, 1, "fp32")
    want = run(spec, x, residual, weight)
    other = replace(spec, exact=False, **{k: v for k, v in workers.items() if k != "exact"})
    got = run(replace(other, exact=workers.get("exact", False)), x, residual, weight)
    assert np.array_equal(got[0], want[0])
    assert np.array_equal(got[1], want[1])


@pytest.mark.parametrize("width", [111, 1024, 4096])
def test_a_row_has_the_same_bits_among_any_number_of_rows(width):
    x, residual, weight = fp32_rows(16, width)
    specs = {spec_for(width, rows, "fp32") for rows in (1, 16, 255, 256, 4096)}
    results = [run(spec, x, residual, weight) for spec in specs]
    for other in results[1:]:
        assert np.array_equal(other[0], results[0][0])
        assert np.array_equal(other[1], results[0][1])


@pytest.mark.parametrize("width", [64, 111, 512])
def test_short_rows_keep_their_bits_in_a_warp_a_part_of_it_or_a_block(width):
    x, residual, weight = fp32_rows(13, width)
    tree = row_tree(width, 4)
    spec = replace(spec_for(width, 13, "fp32"), row_in="registers", rows=1, exact=False)
    one_warp = run(replace(spec, warps=1, lanes=32, partials=4), x, residual, weight)
    chosen = run(spec_for(width, 13, "fp32"), x, residual, weight)
    block = run(replace(spec, warps=max(2, tree.segments), lanes=32, partials=1), x, residual, weight)
    for other in (chosen, block):
        assert np.array_equal(other[0], one_warp[0])
        assert np.array_equal(other[1], one_warp[1])


def test_the_sum_follows_the_documented_tree():
    """The tree of reduction.py, written out in NumPy, gives the kernel's bits."""
    width = 4096
    x, weight = random((1, width), "fp32", 5), np.ones(width, np.float32)
    tree = row_tree(width, 4)
    total = np.float32(0)
    lanes = np.zeros(32, np.float32)
    for segment in range(tree.segments):
        sums = np.zeros(32, np.float32)
        for lane in range(32):
            for c in range(tree.chain):
                leaf = (segment * tree.chain + c) * 32 + lane
                for v in x[0, leaf * tree.leaf : (leaf + 1) * tree.leaf]:
                    # The product of two fp32 values is exact in fp64, so adding there and rounding once is a fused multiply-add
                    # but for double rounding, which a random row does not meet.
                    sums[lane] = np.float32(np.float64(v) * np.float64(v) + np.float64(sums[lane]))
        for offset in (16, 8, 4, 2, 1):
            sums = sums + sums[np.arange(32) ^ offset]
        lanes[segment % 32] += sums[0]
    for offset in (16, 8, 4, 2, 1):
        lanes = lanes + lanes[np.arange(32) ^ offset]
    total = lanes[0]
    shifted = np.float32(np.float64(total) * np.float64(np.float32(1 / width)) + np.float64(np.float32(1e-6)))
    rstd = np.float32(1) / np.sqrt(shifted)
    want = (x[0] * rstd) * weight
    spec = spec_for(width, 1, "fp32")
    got, _ = run(spec, x, np.zeros_like(x), weight)
    assert np.array_equal(got[0], bits(want))


@pytest.mark.parametrize(("width", "rows"), [(4096, 2), (111, 5), (1024, 300), (128, 9), (3584, 2)])
def test_the_kernels_have_no_race_and_read_nothing_unwritten(width, rows):
    x, residual, weight = random((rows, width), "bf16"), random((rows, width), "bf16", 1), random((width,), "bf16", 2)
    spec = spec_for(width, rows)
    rows = [array[:8] for array in (x, residual)]
    want = run(spec_for(width, 8, target=tuning.REPLAY), *rows, weight)
    for schedule_seed in (None, 3):
        got = run(spec, *rows, weight, check="full", schedule_seed=schedule_seed)
        assert np.array_equal(got[0], want[0])
        assert np.array_equal(got[1], want[1])


WAITING = [
    {"row_in": "shared", "warps": 3, "partials": 1},
    {"row_in": "memory", "warps": 3, "partials": 1},
]


@pytest.mark.parametrize("workers", WAITING, ids=str)
def test_wherever_a_row_waits_there_is_no_race(workers):
    x, residual, weight = fp32_rows(5, 2048)
    spec = spec_for(2048, 1, "fp32")
    want = run(spec, x, residual, weight)
    spec = replace(spec, exact=False, **workers)
    for schedule_seed in (None, 1):
        got = run(spec, x, residual, weight, check="full", schedule_seed=schedule_seed)
        assert np.array_equal(got[0], want[0])
        assert np.array_equal(got[1], want[1])


CLUSTERS = [
    {"warps": 4, "partials": 2, "cluster": 2, "exact": True},
    {"warps": 3, "partials": 2, "cluster": 4},
    {"warps": 5, "partials": 1, "cluster": 4},  # 20 warps for 16 segments
    {"warps": 3, "partials": 1, "cluster": 8},  # and the last blocks have none
    {"warps": 2, "partials": 1, "cluster": 16},
]


@pytest.mark.parametrize("workers", CLUSTERS, ids=str)
def test_two_clusters_draw_all_rows_whatever_the_schedule(workers):
    """No warp, however seldom it goes on, is left behind, and the bits are those of one block."""
    x, residual, weight = fp32_rows(20, 2048)
    spec = spec_for(2048, 1, "fp32")
    want = run(spec, x, residual, weight)
    spec = replace(spec, **{"exact": False, "early": 0, **workers})
    for schedule_seed in (None, *range(30)):
        got = run(spec, x, residual, weight, blocks=2 * spec.cluster, schedule_seed=schedule_seed)
        assert np.array_equal(got[0], want[0])
        assert np.array_equal(got[1], want[1])


def agrees_with_the_replay_form(spec, rows, width, dtype, weight_dtype, **options):
    x, residual, weight = random((rows, width), dtype), random((rows, width), dtype, 1), random((width,), weight_dtype, 2)
    plain = spec_for(width, rows, dtype, tuning.REPLAY, weight_dtype, **options)
    want = run(plain, x, residual, weight)
    for clusters, schedule_seed in ((1, None), (2, 1)):  # which draw all rows; a block for each where they don't
        blocks = clusters * spec.cluster if spec.cluster > 1 else None
        got = run(spec, x, residual, weight, blocks=blocks, schedule_seed=schedule_seed)
        assert np.array_equal(got[0], want[0])
        assert np.array_equal(got[1], want[1])


@pytest.mark.parametrize(
    ("width", "rows", "dtype", "cluster"),
    [
        (20480, 16, "bf16", 8),
        (65536, 2048, "bf16", 8),
        (65544, 8, "bf16", 16),
        (10001, 200, "fp16", 4),
        (40000, 200, "fp32", 8),
    ],
)
def test_the_forms_for_wide_rows_have_the_bits_of_the_replay_s(width, rows, dtype, cluster):
    spec = spec_for(width, rows, dtype)
    assert spec.cluster == cluster
    agrees_with_the_replay_form(spec, 3, width, dtype, dtype)


WIDE = [
    (16386, 200),
    (18000, 16),
    (24576, 8192),
    (32766, 200),
    (49152, 4),
    (65530, 200),
    (100000, 300),
    (131072, 512),
    (262144, 64),
]


@pytest.mark.slow
@pytest.mark.parametrize("adds_residual", [True, False])
@pytest.mark.parametrize("weight_dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(("width", "rows"), WIDE)
def test_every_form_for_wide_rows_has_the_bits_of_the_replay_s(width, rows, weight_dtype, adds_residual):
    spec = spec_for(width, rows, "bf16", H200, weight_dtype, adds_residual=adds_residual)
    agrees_with_the_replay_form(spec, 3, width, "bf16", weight_dtype, adds_residual=adds_residual)

"""The summation tree: a function of the width alone, and the same bits whoever adds it up. On the CPU emulator."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from numba_kernels import tuning
from numba_kernels.backend.compile import kernel_function
from numba_kernels.emulator import EmulatedKernel
from numba_kernels.formats import FORMATS
from numba_kernels.kernels.config import Kernel, NormOperation
from numba_kernels.kernels.tree import MAX_TILES, row_tree

from .rows import bits, random

H200 = tuning.Target("sm_90", shared_bytes=227 * 1024, processors=132, clusters=16)


def slow(*values):
    """A point that repeats what another says, over one more shape or dtype."""
    return pytest.param(*values, marks=pytest.mark.slow)


def kernel_for(width, rows, dtype="bf16", target=H200, weight=None, *, adds_residual=True):
    """What tuning chooses for aligned, contiguous rows."""
    operation = NormOperation(adds_residual, dtype, weight or dtype, False, False, 0.0)
    itemsize, weight_itemsize = FORMATS[dtype].itemsize, FORMATS[operation.weight].itemsize
    vector = row_tree(width, itemsize).vector
    access, weight_access = tuning.access_bytes(vector, itemsize, width * itemsize), tuning.access_bytes(vector, weight_itemsize)
    config = tuning.norm_config(operation, width, rows, target, access=access, weight_access=weight_access)
    return Kernel(operation, config)


def changed(kernel, **changes):
    """The kernel with another configuration; one that is not exact, unless that is asked for."""
    return replace(kernel, config=replace(kernel.config, **{"exact": False, **changes}))


@cache
def emulated(kernel, check):
    """Compiled once: the full check's code is not kept on disk."""
    return EmulatedKernel(kernel_function(kernel), check=check, accepted=True)  # test_codegen.py compiles them for a GPU


def run(kernel, x, residual, weight, check="fast", blocks=None, **options):
    """The kernel on copies, by ``blocks`` if not by one for each row; its outputs' bits."""
    rows, width = x.shape
    x, residual = bits(x.copy()), bits(residual.copy())
    constants = [int(np.float32(value).view(np.uint32)) for value in (1 / width, 1e-6, 0)]
    arguments = (x.ravel(), residual.ravel(), bits(weight), x.ravel(), width, width, width, rows, width, *constants, 0)
    grid, shared = kernel.shape(rows, width)
    grid = (blocks or grid[0], 1, 1)
    options.update(dynamic_shared_bytes=shared, cluster=kernel.config.cluster)
    emulated(kernel, check).launch(grid=grid, block=kernel.config.threads, args=arguments, **options)
    return x, residual


@pytest.mark.parametrize("width", [1, 2, 3, 8, 111, 4096, 4097, 7168, 65536, 131072, 262144, 1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_a_tree_covers_its_row_and_fits_shared_memory(width, itemsize):
    tree = row_tree(width, itemsize)
    assert tree.vector * tree.vectors == width
    assert tree.tiles <= MAX_TILES
    assert (tree.tiles - 1) * 32 * tree.vectors_per_lane < tree.vectors <= tree.tiles * 32 * tree.vectors_per_lane


def fp32_rows(rows, width):
    """Input, residual and weight. fp32 output shows the last bit of the sum, where 16 bits would hide almost all of it."""
    return random((rows, width), "fp32"), random((rows, width), "fp32", 1), random((width,), "fp32", 2)


WORKERS = [
    slow({"threads_per_row": 512, "tiles_per_warp": 1}),
    slow({"threads_per_row": 160, "tiles_per_warp": 4}),
    slow({"threads_per_row": 128, "tiles_per_warp": 4, "exact": True, "early_weights": 0}),
    slow({"threads_per_row": 256, "tiles_per_warp": 2, "early_weights": 1}),
    slow({"access": 4, "weight_access": 8}),
    slow({"threads_per_row": 64, "tiles_per_warp": 8, "early_weights": 0, "exact": True}),
    slow({"threads_per_row": 96, "tiles_per_warp": 8, "early_weights": 0}),
    slow({"row_in": "shared", "threads_per_row": 96, "tiles_per_warp": 2}),
    slow({"row_in": "memory", "threads_per_row": 160, "tiles_per_warp": 1}),
]


@pytest.mark.parametrize("workers", WORKERS, ids=str)
def test_a_row_has_the_same_bits_whoever_adds_it_up(workers):
    x, residual, weight = fp32_rows(16, 2048)
    kernel = kernel_for(2048, 1, "fp32")
    want = run(kernel, x, residual, weight)
    got = run(changed(kernel, **workers), x, residual, weight)
    assert np.array_equal(got[0], want[0])
    assert np.array_equal(got[1], want[1])


@pytest.mark.parametrize("width", [slow(111), 1024, slow(4096)])
def test_a_row_has_the_same_bits_among_any_number_of_rows(width):
    x, residual, weight = fp32_rows(16, width)
    kernels = {kernel_for(width, rows, "fp32") for rows in (1, 16, 255, 256, 4096)}
    results = [run(kernel, x, residual, weight) for kernel in kernels]
    for other in results[1:]:
        assert np.array_equal(other[0], results[0][0])
        assert np.array_equal(other[1], results[0][1])


@pytest.mark.parametrize("width", [64, 111, 512])
@pytest.mark.slow
def test_short_rows_keep_their_bits_in_a_warp_a_part_of_it_or_a_block(width):
    x, residual, weight = fp32_rows(13, width)
    tree = row_tree(width, 4)
    kernel = changed(kernel_for(width, 13, "fp32"), row_in="registers", rows_per_block=1)
    one_warp = run(changed(kernel, threads_per_row=32, tiles_per_warp=4), x, residual, weight)
    chosen = run(kernel_for(width, 13, "fp32"), x, residual, weight)
    block = run(changed(kernel, threads_per_row=32 * max(2, tree.tiles), tiles_per_warp=1), x, residual, weight)
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
    for tile in range(tree.tiles):
        sums = np.zeros(32, np.float32)
        for lane in range(32):
            for c in range(tree.vectors_per_lane):
                vector = (tile * tree.vectors_per_lane + c) * 32 + lane
                for v in x[0, vector * tree.vector : (vector + 1) * tree.vector]:
                    # The product of two fp32 values is exact in fp64, so adding there and rounding once is a fused multiply-add
                    # but for double rounding, which a random row does not meet.
                    sums[lane] = np.float32(np.float64(v) * np.float64(v) + np.float64(sums[lane]))
        for offset in (16, 8, 4, 2, 1):
            sums = sums + sums[np.arange(32) ^ offset]
        lanes[tile % 32] += sums[0]
    for offset in (16, 8, 4, 2, 1):
        lanes = lanes + lanes[np.arange(32) ^ offset]
    total = lanes[0]
    shifted = np.float32(np.float64(total) * np.float64(np.float32(1 / width)) + np.float64(np.float32(1e-6)))
    rstd = np.float32(1) / np.sqrt(shifted)
    want = (x[0] * rstd) * weight
    kernel = kernel_for(width, 1, "fp32")
    got, _ = run(kernel, x, np.zeros_like(x), weight)
    assert np.array_equal(got[0], bits(want))


@pytest.mark.parametrize(("width", "rows"), [slow(4096, 2), (111, 5), slow(1024, 300), slow(128, 9), slow(3584, 2)])
def test_the_kernels_have_no_race_and_read_nothing_unwritten(width, rows):
    x, residual, weight = random((rows, width), "bf16"), random((rows, width), "bf16", 1), random((width,), "bf16", 2)
    kernel = kernel_for(width, rows)
    rows = [array[:8] for array in (x, residual)]
    want = run(kernel_for(width, 8, target=tuning.EMULATOR), *rows, weight)
    for schedule_seed in (None, 3):
        got = run(kernel, *rows, weight, check="full", schedule_seed=schedule_seed)
        assert np.array_equal(got[0], want[0])
        assert np.array_equal(got[1], want[1])


WITH_LANES_LEFT = [
    {"row_in": "memory", "threads_per_row": 96, "tiles_per_warp": 1},
    slow({"row_in": "shared", "threads_per_row": 96, "tiles_per_warp": 1}),
    slow({"threads_per_row": 160, "tiles_per_warp": 4}),
    slow({"threads_per_row": 576, "tiles_per_warp": 1, "early_weights": 1}),
]


@pytest.mark.parametrize("workers", WITH_LANES_LEFT, ids=str)
@pytest.mark.slow
def test_lanes_past_the_row_s_end_load_nothing_that_others_write(workers):
    """What is written in place is another thread's from the store on, with no barrier between."""
    x, residual, weight = fp32_rows(5, 2048)
    kernel = kernel_for(2048, 1, "fp32")
    want = run(kernel, x, residual, weight)
    kernel = changed(kernel, **workers)
    for schedule_seed in (None, 1):
        got = run(kernel, x, residual, weight, check="full", schedule_seed=schedule_seed)
        assert np.array_equal(got[0], want[0])
        assert np.array_equal(got[1], want[1])


CLUSTERS = [
    slow({"threads_per_row": 128, "tiles_per_warp": 2, "cluster": 2, "exact": True}),
    slow({"threads_per_row": 96, "tiles_per_warp": 2, "cluster": 4}),
    {"threads_per_row": 160, "tiles_per_warp": 1, "cluster": 4},  # 20 warps for 16 warp tiles
    slow({"threads_per_row": 96, "tiles_per_warp": 1, "cluster": 8}),  # and the last blocks have none
    slow({"threads_per_row": 64, "tiles_per_warp": 1, "cluster": 16}),
]


@pytest.mark.parametrize("workers", CLUSTERS, ids=str)
def test_two_clusters_take_all_rows_whatever_the_schedule(workers):
    """No warp, however seldom it goes on, is left behind, and the bits are those of one block."""
    x, residual, weight = fp32_rows(20, 2048)
    kernel = kernel_for(2048, 1, "fp32")
    want = run(kernel, x, residual, weight)
    kernel = changed(kernel, **{"persistent": True, "early_weights": 0, **workers})
    for schedule_seed in (None, *range(30)):
        got = run(kernel, x, residual, weight, blocks=2 * kernel.config.cluster, schedule_seed=schedule_seed)
        assert np.array_equal(got[0], want[0])
        assert np.array_equal(got[1], want[1])


def agrees_with_the_emulator_s_form(kernel, rows, width, dtype, weight_dtype, **options):
    x, residual, weight = random((rows, width), dtype), random((rows, width), dtype, 1), random((width,), weight_dtype, 2)
    plain = kernel_for(width, rows, dtype, tuning.EMULATOR, weight_dtype, **options)
    want = run(plain, x, residual, weight)
    for clusters, schedule_seed in ((1, None), (2, 1)):  # which take all rows; a block for each where there are none
        blocks = clusters * kernel.config.cluster if kernel.config.persistent else None
        got = run(kernel, x, residual, weight, blocks=blocks, schedule_seed=schedule_seed)
        assert np.array_equal(got[0], want[0])
        assert np.array_equal(got[1], want[1])


@pytest.mark.parametrize(
    ("width", "rows", "dtype", "cluster"),
    [
        slow(20480, 16, "bf16", 4),
        slow(65536, 2048, "bf16", 8),
        slow(65544, 8, "bf16", 16),
        slow(10001, 200, "fp16", 4),
        slow(40000, 200, "fp32", 8),
    ],
)
def test_the_forms_for_wide_rows_have_the_bits_of_the_emulator_s(width, rows, dtype, cluster):
    kernel = kernel_for(width, rows, dtype)
    assert kernel.config.cluster == cluster
    agrees_with_the_emulator_s_form(kernel, 3, width, dtype, dtype)


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
def test_every_form_for_wide_rows_has_the_bits_of_the_emulator_s(width, rows, weight_dtype, adds_residual):
    kernel = kernel_for(width, rows, "bf16", H200, weight_dtype, adds_residual=adds_residual)
    agrees_with_the_emulator_s_form(kernel, 3, width, "bf16", weight_dtype, adds_residual=adds_residual)

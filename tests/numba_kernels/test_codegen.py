"""What the compiler makes of the kernels, without a GPU: PTX and cubins for three architectures, registers, spills, accesses."""

import re
from dataclasses import replace
from functools import cache

import pytest

from numba_kernels import tuning
from numba_kernels.backend.compile import assemble, compile_to_ptx
from numba_kernels.formats import FORMATS
from numba_kernels.kernels.config import GatedOperation, Kernel, NormOperation
from numba_kernels.kernels.tree import row_tree
from numba_kernels.plans import GatedPlan, NormPlan

TARGETS = {
    (8, 0): tuning.Target("sm_80", shared_bytes=163 * 1024, processors=108),
    (9, 0): tuning.Target("sm_90", shared_bytes=227 * 1024, processors=132, clusters=16, pdl=True, bulk_prefetch=True),
    (10, 0): tuning.Target("sm_100", shared_bytes=227 * 1024, processors=148, clusters=16, pdl=True, bulk_prefetch=True),
}
REGISTERS_OF_A_PROCESSOR = 65536
ALL = [(cc, dtype) for cc in TARGETS for dtype in FORMATS]


def slow(*values):
    """A point that repeats what another says, over one more shape or dtype."""
    return pytest.param(*values, marks=pytest.mark.slow)


def norm(width, rows, dtype, target, **options):
    """The kernel for aligned, contiguous rows."""
    operation = NormOperation(
        storage=dtype,
        **{"adds_residual": True, "weight": dtype, "rounds_sum": False, "rounds_norm": False, "weight_bias": 0.0, **options},
    )
    itemsize = FORMATS[dtype].itemsize
    access = tuning.access_bytes(row_tree(width, itemsize).vector, itemsize, width * itemsize)
    config = tuning.norm_config(operation, width, rows, target, access=access, weight_access=access, pdl=target.pdl)
    return Kernel(operation, config)


def gated(activation, width, rows, dtype, target, **options):
    """The kernel for aligned, contiguous rows."""
    operation, itemsize = GatedOperation(activation, dtype, **options), FORMATS[dtype].itemsize
    access = tuning.access_bytes(row_tree(width, itemsize).vector, itemsize, width * itemsize)
    return Kernel(operation, tuning.gated_config(operation, width, rows, target, access=access, pdl=target.pdl))


@cache
def built(kernel, cc):
    """The PTX, and ptxas's (registers, bytes of stack and spills)."""
    ptx = compile_to_ptx(kernel, cc)
    cubin, report = assemble(ptx, cc)
    assert cubin[:4] == b"\x7fELF"
    registers = int(re.search(r"Used (\d+) registers", report).group(1))
    waste = sum(int(n) for n in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", report))
    return ptx, registers, waste


def check(kernel, cc, *, wide):
    ptx, registers, waste = built(kernel, cc)
    assert ".f64" not in ptx
    assert not re.search(r"\b(add|sub|mul)\.f32", ptx)  # all say .rn: nothing is left for a compiler to contract
    assert ".local" not in ptx
    assert waste == 0
    assert registers * kernel.config.threads * kernel.config.blocks_per_processor <= REGISTERS_OF_A_PROCESSOR
    for access in ("ld", "st"):
        assert bool(re.search(rf"{access}\.global\.v4\.[bfu]32", ptx)) == wide
    return ptx


@pytest.mark.parametrize(("cc", "dtype"), [p if p == ((9, 0), "bf16") else slow(*p) for p in ALL])
def test_the_add_norm_has_wide_accesses_no_fp64_and_no_spills(cc, dtype):
    ptx = check(norm(4096, 4096, dtype, TARGETS[cc]), cc, wide=True)
    assert ("griddepcontrol.wait" in ptx) == TARGETS[cc].pdl


@pytest.mark.parametrize(("cc", "dtype"), [p if p == ((9, 0), "bf16") else slow(*p) for p in ALL])
@pytest.mark.parametrize("activation", [slow("silu"), "gelu", slow("gelu_tanh")])
def test_the_gated_forms_have_wide_accesses_no_fp64_and_no_spills(cc, dtype, activation):
    check(gated(activation, 14336, 4096, dtype, TARGETS[cc]), cc, wide=True)


@pytest.mark.parametrize(
    ("width", "rows"),
    [
        (4096, 1),
        slow(7168, 4096),
        slow(8192, 2048),
        slow(16384, 1024),
        slow(1024, 16384),
        slow(128, 65536),
        slow(65536, 8192),
        slow(100000, 2048),
        slow(262144, 512),
    ],
)
def test_every_class_of_width_fits_its_registers(width, rows):
    check(norm(width, rows, "bf16", TARGETS[9, 0]), (9, 0), wide=True)
    check(norm(width, rows, "bf16", TARGETS[9, 0], adds_residual=False), (9, 0), wide=True)


@pytest.mark.parametrize("code", [slow("R1W0"), slow("R0W1"), "R1W1"])
def test_every_contract_fits_its_registers(code):
    options = {"rounds_sum": "R1" in code, "rounds_norm": "W1" in code, "weight_bias": 1.0}
    check(norm(4096, 4096, "bf16", TARGETS[9, 0], **options), (9, 0), wide=True)


@pytest.mark.parametrize("width", [111, slow(4097), slow(100003)])
def test_an_odd_width_takes_scalar_accesses(width):
    check(norm(width, 128, "bf16", TARGETS[9, 0]), (9, 0), wide=False)


ROW_IN = [slow(32768, "registers"), slow(33000, "shared"), slow(10001, "shared"), slow(131072, "memory")]


@pytest.mark.parametrize(("width", "row_in"), ROW_IN)
def test_without_clusters_a_wide_row_waits_in_shared_memory_or_is_read_twice(width, row_in):
    kernel = norm(width, 16, "bf16", TARGETS[8, 0])
    assert (kernel.config.row_in, kernel.config.cluster) == (row_in, 1)
    check(kernel, (8, 0), wide=width % 8 == 0)


@pytest.mark.parametrize(("width", "vectors", "cluster"), [slow(65536, 2, 8), slow(131072, 4, 8), slow(262144, 4, 16)])
def test_a_persistent_kernel_keeps_the_weight_in_shared_memory_16_bytes_at_a_time(width, vectors, cluster):
    kernel = norm(width, 2048, "bf16", TARGETS[9, 0])
    assert (kernel.config.cluster, kernel.config.vectors_per_thread) == (cluster, vectors)
    ptx = check(kernel, (9, 0), wide=True)
    assert f".minnctapersm {kernel.config.blocks_per_processor}" in ptx
    for access in ("ld", "st"):
        assert len(re.findall(rf"{access}\.shared\.v4\.[bu]32", ptx)) == vectors
    assert len(re.findall(r"atom\.global\.add\.u32", ptx)) == 1


@pytest.mark.parametrize("rows", [1, 2048])
@pytest.mark.parametrize("width", [65536, 131072, 262144])
@pytest.mark.parametrize("largest", [2, 4, 8])
def test_a_gpu_of_smaller_clusters_has_smaller_clusters(width, rows, largest):
    kernel = norm(width, rows, "bf16", replace(TARGETS[9, 0], clusters=largest))
    assert kernel.config.cluster <= largest
    assert (kernel.config.cluster > 1) == (width <= 32768 * largest)


@pytest.mark.slow
def test_a_row_of_262144_fits_clusters_of_8_too():
    check(norm(262144, 512, "bf16", replace(TARGETS[9, 0], clusters=8)), (9, 0), wide=True)


@pytest.mark.parametrize(
    ("width", "rows", "first"), [(4096, 4096, 512), slow(4096, 1024, 256), slow(16384, 1024, 128), slow(65536, 8192, 32)]
)
def test_some_residual_is_prefetched_before_the_predecessor_ends_and_rows_ahead_after_it(width, rows, first):
    """How often code prefetches is seen here; which rows, only by timing."""
    kernel = norm(width, rows, "bf16", TARGETS[9, 0])
    assert (kernel.config.prefetch_first, kernel.config.first_rows) == (True, first)
    before, after = check(kernel, (9, 0), wide=True).split("griddepcontrol.wait")
    assert before.count("cp.async.bulk.prefetch") == 2  # the weight, the residual
    assert after.count("cp.async.bulk.prefetch") == (2 if kernel.config.prefetch_ahead else 0)  # x, the residual


def test_widths_that_are_alike_share_a_kernel():
    assert norm(4080, 1024, "bf16", TARGETS[9, 0]) == norm(4088, 1024, "bf16", TARGETS[9, 0])


@pytest.mark.parametrize("width", [slow(4097), slow(8194), slow(16388)])
def test_a_thread_holds_8_narrow_vectors(width):
    kernel = norm(width, 100, "bf16", TARGETS[9, 0])
    config = kernel.config
    assert (config.row_in, config.cluster, config.vectors_per_thread) == ("registers", 1, 8)
    check(kernel, (9, 0), wide=False)


@pytest.mark.parametrize(("width", "dtype"), [slow(65544, "bf16"), slow(100000, "bf16"), slow(32772, "fp32")])
def test_every_warp_of_a_cluster_sends_its_sums(width, dtype):
    """Also those past the row's end: without them a phase could end twice before such a warp looked."""
    kernel = norm(width, 200, dtype, TARGETS[9, 0])
    everything = 4 * kernel.config.tiles_per_warp * kernel.config.warps * kernel.config.cluster
    assert everything > 4 * row_tree(width, FORMATS[dtype].itemsize).tiles
    ptx, _, _ = built(kernel, (9, 0))
    assert re.search(rf"mov\.u32\s+(%r\d+), {everything};.*?mbarrier\.arrive\.expect_tx\S+ _, \[%r\d+\], \1;", ptx, re.DOTALL)


def test_an_access_is_as_wide_as_every_address_allows():
    assert tuning.access_bytes(8, 2, 0, 16, 4096) == 16
    assert tuning.access_bytes(8, 2, 8, 16) == 8
    assert tuning.access_bytes(8, 2, 2) == 2
    assert tuning.access_bytes(1, 2, 0) == 2
    assert tuning.access_bytes(4, 4, 4) == 4


ALIGNED, OFF = 4096, 4096 + 2  # addresses


OPERATION = NormOperation(True, "bf16", "bf16", False, False, 0.0)


@pytest.mark.parametrize("place", ["x", "residual", "weight", "out"])
def test_one_misaligned_address_makes_its_own_accesses_scalar(place):
    plan = NormPlan(OPERATION, rows=1, width=4096, x_stride=4096, residual_stride=4096, out_stride=4096, eps_bits=0)
    addresses = tuple(OFF if name == place else ALIGNED for name in ("x", "residual", "weight", "out"))
    config = plan.kernel(TARGETS[9, 0], addresses, False).config
    assert (config.access, config.weight_access) == ((16, 2) if place == "weight" else (2, 16))


@pytest.mark.parametrize("place", ["x_stride", "residual_stride", "out_stride"])
def test_one_odd_stride_makes_the_rows_accesses_scalar(place):
    strides = {name: 4097 if name == place else 4096 for name in ("x_stride", "residual_stride", "out_stride")}
    plan = NormPlan(OPERATION, rows=2, width=4096, **strides, eps_bits=0)
    config = plan.kernel(TARGETS[9, 0], (ALIGNED,) * 4, False).config
    assert (config.access, config.weight_access) == (2, 16)


@pytest.mark.parametrize(
    ("width", "strides", "addresses", "access"),
    [
        (4096, (8192, 4096), (ALIGNED, ALIGNED), 16),
        (4096, (8192, 4096), (OFF, ALIGNED), 2),
        (4096, (8192, 4096), (ALIGNED, OFF), 2),
        (4096, (8193, 4096), (ALIGNED, ALIGNED), 2),
        (4096, (8192, 4097), (ALIGNED, ALIGNED), 2),
        (4095, (8192, 4096), (ALIGNED, ALIGNED), 2),  # up lies off its alignment
    ],
)
def test_whatever_is_misaligned_makes_a_gated_rows_accesses_scalar(width, strides, addresses, access):
    x_stride, out_stride = strides
    plan = GatedPlan(GatedOperation("silu", "bf16"), rows=2, width=width, x_stride=x_stride, out_stride=out_stride)
    assert plan.kernel(TARGETS[9, 0], addresses, False).config.access == access


@pytest.mark.parametrize("kilobytes", [48, 64, 99, 163, 227])
def test_no_width_asks_for_more_shared_memory_than_a_block_has(kilobytes):
    target = tuning.Target("any", shared_bytes=kilobytes * 1024, processors=100)
    kept = 0
    for width in (*range(1, 70_000, 97), 3584, 16384, 32768, 131072):
        for dtype in FORMATS:
            _, dynamic = norm(width, 16, dtype, target).shape(16, width)
            kept += dynamic > 0
            assert dynamic + tuning.SHARED_STATIC <= target.shared_bytes, width
    assert kept > 0


def test_blocks_that_share_a_multiprocessor_share_its_memory_too():
    target, pairs = replace(TARGETS[9, 0], shared_bytes=48 * 1024), 0
    for width in (24576, 40000, 65536, 100000, 131072, 262144):
        for weight in ("bf16", "fp32"):
            kernel = norm(width, 4096, "bf16", target, weight=weight)
            blocks, (_, dynamic) = kernel.config.blocks_per_processor, kernel.shape(4096, width)
            pairs += blocks > 1
            assert blocks * (dynamic + tuning.SHARED_STATIC) <= target.shared_bytes, width
    assert pairs > 0


@pytest.mark.parametrize(
    ("width", "row_in", "cc"), [(4096, "registers", (8, 0)), slow(10001, "shared", (8, 0)), slow(131072, "registers", (9, 0))]
)
def test_a_block_has_no_more_static_shared_memory_than_is_counted(width, row_in, cc):
    kernel = norm(width, 16, "bf16", TARGETS[cc])
    assert kernel.config.row_in == row_in
    static = re.findall(r"\.shared \.align \d+ \.b8 \w+\[(\d+)\];", built(kernel, cc)[0])
    assert 0 < sum(map(int, static)) <= tuning.SHARED_STATIC

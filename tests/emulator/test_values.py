"""What an emulated kernel computes: the values a GPU would give, for the right kernels."""

import numpy as np
import pytest
from numba import cuda, float32, float64, int32, int64, uint16, uint32

from numba_kernels.emulator import CompileError, EmulatedKernel, KernelException

ALL = 0xFFFFFFFF
BOTH = pytest.mark.parametrize("check", [pytest.param("fast", marks=pytest.mark.slow), "full"])


def run(kernel, block, *args, grid=1, check="fast", **options):
    EmulatedKernel(kernel, check=check).launch(grid, block, args, **options)


# --- indices ---------------------------------------------------------------------------------------------------------


@BOTH
def test_every_thread_of_a_three_dimensional_launch_sees_its_own_indices(check):
    def kernel(out):
        x, y, z = cuda.threadIdx.x, cuda.threadIdx.y, cuda.threadIdx.z
        t = x + cuda.blockDim.x * (y + cuda.blockDim.y * z)
        b = cuda.blockIdx.x + cuda.gridDim.x * (cuda.blockIdx.y + cuda.gridDim.y * cuda.blockIdx.z)
        out[b, t] = 1000 * b + 100 * z + 10 * y + x

    out = np.full((24, 60), -1)
    run(kernel, (5, 4, 3), out, grid=(2, 3, 4), check=check)
    x, y, z = np.meshgrid(range(5), range(4), range(3), indexing="ij")
    threads = (100 * z + 10 * y + x).transpose(2, 1, 0).reshape(-1)
    np.testing.assert_array_equal(out, 1000 * np.arange(24)[:, None] + threads)


def test_indices_survive_a_barrier():
    def kernel(out):
        cuda.syncthreads()
        out[cuda.grid(1)] = cuda.blockIdx.x * 1000 + cuda.threadIdx.x + cuda.laneid * 10000

    out = np.zeros(3 * 40, np.int64)
    run(kernel, 40, out, grid=3)
    t = np.arange(40)
    np.testing.assert_array_equal(out.reshape(3, 40), np.arange(3)[:, None] * 1000 + t + (t % 32) * 10000)


def test_grid_of_two_dimensions_and_gridsize():
    def kernel(out):
        i, j = cuda.grid(2)
        out[i, j] = cuda.gridsize(1)

    out = np.zeros((6, 8), np.int64)
    run(kernel, (3, 4), out, grid=(2, 2))
    assert (out == 6).all()


# --- warp collectives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.int64, *(pytest.param(t, marks=pytest.mark.slow) for t in (np.float64, np.int32))],
)
def test_a_shuffle_moves_every_bit_and_keeps_the_type(dtype):
    def kernel(x, y):
        t = cuda.threadIdx.x
        y[t] = cuda.shfl_xor_sync(ALL, x[t], 5)

    raw = np.random.default_rng(0).integers(0, 256, 32 * np.dtype(dtype).itemsize, dtype=np.uint8)
    x = raw.view(dtype)
    if x.dtype.kind == "f":  # NaN payloads and signed zeros too
        x[:3] = np.array([0x7FC01234, 0x80000000, 1], np.uint32).view(np.float32)
    y = np.zeros_like(x)
    run(kernel, 32, x, y)
    assert y.tobytes() == x[np.arange(32) ^ 5].tobytes()


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_a_shuffle_of_what_numba_cuda_does_not_shuffle_is_refused(dtype):
    def kernel(x, y):
        y[0] = cuda.shfl_xor_sync(ALL, x[0], 5)

    with pytest.raises(CompileError, match="shfl_sync only supports 32- and 64-bit ints and floats"):
        run(kernel, 32, np.zeros(1, dtype), np.zeros(1, dtype))


def test_each_shuffle_reads_the_lane_that_cuda_names():
    def kernel(x, y):
        t = cuda.threadIdx.x
        y[0, t] = cuda.shfl_sync(ALL, x[t], 35)
        y[1, t] = cuda.shfl_xor_sync(ALL, x[t], 6)
        y[2, t] = cuda.shfl_down_sync(ALL, x[t], 7)
        y[3, t] = cuda.shfl_up_sync(ALL, x[t], 9)

    x = np.arange(64, dtype=np.int32)
    y = np.zeros((4, 64), np.int32)
    run(kernel, 64, x, y)
    base, lane = np.divmod(np.arange(64), 32)
    np.testing.assert_array_equal(y[0], 32 * base + 3)
    np.testing.assert_array_equal(y[1], 32 * base + (lane ^ 6))
    np.testing.assert_array_equal(y[2], 32 * base + np.where(lane + 7 < 32, lane + 7, lane))
    np.testing.assert_array_equal(y[3], 32 * base + np.where(lane >= 9, lane - 9, lane))


@BOTH
def test_halves_of_a_warp_shuffle_among_themselves(check):
    def kernel(x, y):
        t = cuda.threadIdx.x
        if t < 16:
            v = cuda.shfl_sync(0x0000FFFF, x[t], 3)
        else:
            v = cuda.shfl_sync(0xFFFF0000, x[t], 20)
            v = v + cuda.shfl_xor_sync(0xFFFF0000, x[t], 1)
        y[t] = v

    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run(kernel, 32, x, y, check=check, schedule_seed=3)
    t = np.arange(32)
    np.testing.assert_array_equal(y, np.where(t < 16, 3, 20 + (t ^ 1)))


def test_votes_count_the_lanes_of_their_mask_alone():
    def kernel(out):
        t = cuda.threadIdx.x
        if t < 8:
            out[0, t] = cuda.ballot_sync(0xFF, t % 2)
            out[1, t] = cuda.all_sync(0xFF, t < 8)
            out[2, t] = cuda.any_sync(0xFF, t >= 8)
            out[3, t] = cuda.any_sync(0xFF, t == 7)

    out = np.full((4, 32), -1)
    run(kernel, 32, out)
    np.testing.assert_array_equal(out[:, :8], [[0xAA] * 8, [1] * 8, [0] * 8, [1] * 8])
    assert (out[:, 8:] == -1).all()


def test_counting_barriers_count_the_block():
    def kernel(out):
        t = cuda.threadIdx.x
        out[0, t] = cuda.syncthreads_count(int32(t % 3 == 0))
        out[1, t] = cuda.syncthreads_and(int32(t < 69))
        out[2, t] = cuda.syncthreads_or(int32(t == 69))

    out = np.zeros((3, 70), np.int64)
    run(kernel, 70, out)
    np.testing.assert_array_equal(out, [[24] * 70, [0] * 70, [1] * 70])


def test_a_collective_may_stand_anywhere_in_an_expression():
    def kernel(x, y):
        t = cuda.threadIdx.x
        y[t] = max(x[t], cuda.shfl_xor_sync(ALL, x[t], 1)) * 2 + (cuda.shfl_sync(ALL, x[t], 4) if True else 0)
        y[cuda.shfl_xor_sync(ALL, t, 2)] += cuda.shfl_sync(ALL, float32(0.5), 0)
        a, b = cuda.shfl_sync(ALL, t, 1), -cuda.shfl_sync(ALL, t, 2)
        y[t] += a + b

    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run(kernel, 32, x, y)
    t = np.arange(32)
    np.testing.assert_array_equal(y, np.maximum(t, t ^ 1) * 2 + 4 + 0.5 - 1)


def test_what_precedes_a_collective_is_evaluated_before_it():
    def kernel(y):
        t = cuda.threadIdx.x
        s = cuda.shared.array(32, int32)
        s[t] = 1
        y[t] = s[t] + after_the_barrier(s, t)

    y = np.zeros(32, np.int32)
    run(kernel, 32, y)
    assert (y == 1 + 10).all()


@cuda.jit(device=True, inline="always")
def after_the_barrier(s, t):
    s[t] = 10
    cuda.syncthreads()
    return s[(t + 1) % 32]


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_collectives_in_loops_with_bounds_known_at_run_time(turns):
    def kernel(x, turns):
        t = cuda.threadIdx.x
        v = x[t]
        for _ in range(turns):
            v = cuda.shfl_sync(ALL, v, (t + 1) % 32)
        left = turns
        while left > 0:
            v = cuda.shfl_up_sync(ALL, v, 1)
            left -= 1
        for step in (16, 8):
            v = cuda.shfl_xor_sync(ALL, v, step)
        x[t] = v

    x = np.arange(32, dtype=np.float32)
    run(kernel, 32, x, turns)
    want = np.roll(np.arange(32), -turns)
    want = want[np.maximum(0, np.arange(32) - turns) if turns < 2 else _up(turns)]
    np.testing.assert_array_equal(x, want[np.arange(32) ^ 24])


def _up(turns):
    lane = np.arange(32)
    index = lane.copy()
    for _ in range(turns):
        index = np.where(lane >= 1, index[lane - 1], index)
    return index


# --- blocks that are not whole warps, lanes that left ----------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("threads", [1, 31, 33, 40, 100])
def test_a_block_need_not_be_whole_warps(threads, check):
    def kernel(x, y):
        t = cuda.threadIdx.x
        s = cuda.shared.array(128, float32)
        s[t] = cuda.shfl_xor_sync(ALL, x[t], 0)
        cuda.syncthreads()
        y[t] = s[cuda.blockDim.x - 1 - t]

    x, y = np.arange(threads, dtype=np.float32), np.zeros(threads, np.float32)
    run(kernel, threads, x, y, check=check)
    np.testing.assert_array_equal(y, x[::-1])


@BOTH
def test_lanes_that_returned_early_are_not_waited_for(check):
    def kernel(y, n):
        t = cuda.threadIdx.x
        if t >= n:
            return
        total = cuda.shfl_xor_sync(ALL, t, 1)
        cuda.syncthreads()
        y[t] = total

    y = np.full(96, -1)
    run(kernel, 96, y, 50, check=check)
    np.testing.assert_array_equal(y, np.where(np.arange(96) < 50, np.arange(96) ^ 1, -1))


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True])  # two ways to run: plain loops, and threads that are resumed
def test_unwritten_shared_and_local_floats_are_nan_in_every_block(waits):
    def kernel(y, z):
        t = cuda.threadIdx.x
        if waits:
            cuda.syncthreads()
        s = cuda.shared.array((2, 40), float32)
        own = cuda.local.array(3, float64)
        y[cuda.blockIdx.x, t] = s[1, t]
        z[cuda.blockIdx.x, t] = own[2]
        s[1, t] = 1
        own[2] = 1

    y, z = np.zeros((3, 40), np.float32), np.zeros((3, 40), np.float32)
    run(kernel, 40, y, z, grid=3)
    assert np.isnan(y).all()
    assert np.isnan(z).all()


def test_local_arrays_belong_to_one_thread_and_live_across_barriers():
    width = 3

    def kernel(y):
        t = cuda.threadIdx.x
        own = cuda.local.array(shape=(width, 2), dtype=int64)
        other = cuda.local.array(6, int64)
        for k in range(width):
            own[k, 1] = 100 * t + k
            other[2 * k + 1] = -1
        cuda.syncthreads()
        for k in range(width):
            y[t, k] = own[k, 1]

    y = np.zeros((70, 3), np.int64)
    run(kernel, 70, y, schedule_seed=1)
    np.testing.assert_array_equal(y, 100 * np.arange(70)[:, None] + np.arange(3))


@BOTH
def test_dynamic_shared_memory_starts_after_the_static_and_aliases_itself(check):
    def kernel(y):
        t = cuda.threadIdx.x
        static = cuda.shared.array(5, uint16)
        words = cuda.shared.array(0, uint32)
        floats = cuda.shared.array(shape=0, dtype=float32)
        if t < 5:
            static[t] = 7
        floats[t] = float32(1.0)
        y[t] = words[t]
        if t < 5:
            y[t] += static[t] * words.size

    y = np.zeros(16, np.int64)
    run(kernel, 16, y, dynamic_shared_bytes=64, check=check)
    np.testing.assert_array_equal(y, 0x3F800000 + np.where(np.arange(16) < 5, 7 * 16, 0))


# --- device functions ------------------------------------------------------------------------------------------------


@cuda.jit(device=True, inline="always")
def warp_sum(value):
    for k in range(5):
        value += cuda.shfl_xor_sync(ALL, value, 16 >> k)
    return value


@cuda.jit(device=True)
def block_sum(value, partial, warps):
    value = warp_sum(value)
    if cuda.threadIdx.x % 32 == 0:
        partial[cuda.threadIdx.x // 32] = value
    cuda.syncthreads()
    lane = cuda.threadIdx.x % 32
    return warp_sum(partial[lane] if lane < warps else float32(0))


@cuda.jit(device=True)
def scaled(value, by=2):
    if value < 0:
        return value
    return lifted(value) * by


@cuda.jit(device=True)
def lifted(value):
    return value + float32(cuda.blockIdx.x)


@BOTH
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_nested_block_reduction_in_device_functions(check, seed):
    warps = 3

    @cuda.jit
    def kernel(x, y):
        partial = cuda.shared.array(warps, float32)
        total = scaled(block_sum(x[cuda.grid(1)], partial, warps), by=float32(3)) + float32(1)
        y[cuda.grid(1)] = total

    x = np.random.default_rng(0).integers(0, 100, 2 * 96).astype(np.float32)
    y = np.zeros_like(x)
    run(kernel, 96, x, y, grid=2, check=check, schedule_seed=seed)
    np.testing.assert_array_equal(y.reshape(2, 96)[:, 0], [x[:96].sum() * 3 + 1, (x[96:].sum() + 1) * 3 + 1])
    assert (y.reshape(2, 96) == y.reshape(2, 96)[:, :1]).all()


@BOTH
def test_each_inlined_call_has_shared_arrays_of_its_own(check):
    def kernel(y):
        t = cuda.threadIdx.x
        y[t] = mirrored(t) + 1000 * mirrored(100 + t)

    y = np.zeros(64, np.int64)
    run(kernel, 64, y, check=check, schedule_seed=5)
    mirror = 63 - np.arange(64)
    np.testing.assert_array_equal(y, mirror + 1000 * (100 + mirror))


@cuda.jit(device=True)
def mirrored(value):
    slots = cuda.shared.array(64, int64)
    slots[cuda.threadIdx.x] = value
    cuda.syncthreads()
    return slots[63 - cuda.threadIdx.x]


def test_two_calls_in_one_expression_do_not_share_their_variables():
    def kernel(y):
        t = cuda.threadIdx.x
        y[t] = warp_sum(t) + 10000 * warp_sum(t + 1)

    y = np.zeros(32, np.int64)
    run(kernel, 32, y)
    assert (y == 496 + 10000 * 528).all()


def test_schedules_give_a_right_kernel_the_same_bits():
    width = 777

    def kernel(x, y):
        partial = cuda.shared.array(4, float32)
        acc = float32(0)
        for i in range(cuda.threadIdx.x, width, 128):
            acc += x[i] * x[i]
        y[cuda.threadIdx.x] = block_sum(acc, partial, 4)

    x = np.random.default_rng(1).standard_normal(width).astype(np.float32)
    results = set()
    for seed in [None, *range(8)]:
        y = np.zeros(128, np.float32)
        run(kernel, 128, x, y, schedule_seed=seed)
        results.add(y.tobytes())
    assert len(results) == 1


# --- compiled forms --------------------------------------------------------------------------------------------------


def test_equal_kernels_share_their_compiled_form_and_different_constants_do_not():
    def make(factor):
        def kernel(y):
            y[cuda.grid(1)] = factor

        return EmulatedKernel(kernel)

    first, second, third = make(1), make(1), make(2)
    y = np.zeros((3, 4))
    for k, kernel in enumerate((first, second, third)):
        kernel.launch(1, 4, (y[k],))
    np.testing.assert_array_equal(y, [[1] * 4, [1] * 4, [2] * 4])
    assert first._get() is second._get()
    assert first._get() is not third._get()


def test_a_branch_on_a_constant_is_not_compiled():
    use_shared = False

    def kernel(y):
        if use_shared:  # noqa: SIM108
            buffer = cuda.shared.array(4, float32)
        else:
            buffer = cuda.local.array(4, float64)
        buffer[0] = 2
        y[cuda.grid(1)] = buffer[0]

    y = np.zeros(4)
    run(kernel, 4, y)
    assert (y == 2).all()


def test_what_constants_fold_away_leaves_nothing_behind():
    ADDS = False

    @cuda.jit(device=True, inline="always")
    def add_to(out, i):
        if ADDS:
            out[i] += 1

    def kernel(out):
        for i in range(cuda.threadIdx.x, out.size, 32):
            add_to(out, i)
        out[cuda.threadIdx.x] = cuda.threadIdx.x

    out = np.zeros(64, np.float32)
    EmulatedKernel(kernel).launch(grid=1, block=32, args=(out,))
    assert out.tolist() == [*range(32), *[0] * 32]


def test_launches_on_many_threads_do_not_meet():
    from concurrent.futures import ThreadPoolExecutor

    def kernel(x, y):
        partial = cuda.shared.array(2, float32)
        y[cuda.grid(1)] = block_sum(x[cuda.grid(1)], partial, 2)

    shared = EmulatedKernel(kernel)

    def one(k):
        x, y = np.full(64 * 50, k, np.float32), np.zeros(64 * 50, np.float32)
        shared.launch(50, 64, (x, y), schedule_seed=k)
        return bool((y == 64 * k).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(40)))


def test_arguments_keep_their_reference_counts():
    import sys

    def kernel(x):
        cuda.syncthreads()
        x[cuda.grid(1)] += 1

    x = np.zeros(64)
    before = sys.getrefcount(x)
    for _ in range(10):
        run(kernel, 64, x)
    assert sys.getrefcount(x) == before
    assert (x == 10).all()


def test_an_exception_of_the_kernel_is_reported_with_its_place():
    def kernel(x):
        cuda.syncthreads()
        if cuda.threadIdx.x == 3:
            raise ValueError("odd")

    with pytest.raises(KernelException, match=r"kernel, test_values.py:\d+, block \(0, 0, 0\), thread 3: ValueError: odd"):
        run(kernel, 32, np.zeros(1))

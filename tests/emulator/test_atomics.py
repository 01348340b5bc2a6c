"""Atomics, locks and what they order; loops that spin; barriers of the grid; a launch that Ctrl-C ends."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from numba import cuda, float32, int32, uint32

from numba_kernels.emulator import DataRace, DivergentBarrier, EmulatedKernel, NeverTrue, UninitializedRead

slow = pytest.mark.slow
BOTH = pytest.mark.parametrize("check", [pytest.param("fast", marks=slow), "full"])
SEEDS = pytest.mark.parametrize("seed", [pytest.param(None, marks=slow), 1, pytest.param(2, marks=slow)])


def run(kernel, grid, block, *args, check="full", seed=None, **options):
    return EmulatedKernel(kernel, check=check).launch(grid, block, args, schedule_seed=seed, **options)


# --- values ----------------------------------------------------------------------------------------------------------


@BOTH
def test_each_operation_changes_and_returns_the_old_value(check):
    def kernel(signed, unsigned, floats, old):
        old[0] = cuda.atomic.add(signed, 0, 5)
        old[1] = cuda.atomic.sub(signed, 1, 5)
        old[2] = cuda.atomic.max(signed, 2, 50)
        old[3] = cuda.atomic.min(signed, 3, -50)
        old[4] = cuda.atomic.exch(signed, 4, 7)
        old[5] = cuda.atomic.cas(signed, 5, 5, 9)
        old[6] = cuda.atomic.cas(signed, 6, 5, 9)
        old[7] = cuda.atomic.compare_and_swap(signed[7:], 7, 70)
        old[8] = cuda.atomic.and_(unsigned, 0, 6)
        old[9] = cuda.atomic.or_(unsigned, 1, 6)
        old[10] = cuda.atomic.xor(unsigned, 2, 6)
        old[11] = cuda.atomic.inc(unsigned, 3, 3)
        old[12] = cuda.atomic.dec(unsigned, 0 + 4, 3)
        old[13] = cuda.atomic.add(floats, (1, 0), 0.5)
        old[14] = cuda.atomic.nanmax(floats, (0, 1), 2)

    signed, unsigned, old = np.arange(8, dtype=np.int32), np.arange(5, dtype=np.uint32) + 3, np.zeros(15)
    floats = np.array([[1, np.nan], [3, 4]], np.float32)
    run(kernel, 1, 1, signed, unsigned, floats, old, check=check)
    assert signed.tolist() == [5, -4, 50, -50, 7, 9, 6, 70]
    assert unsigned.tolist() == [3 & 6, 4 | 6, 5 ^ 6, 0, 3]
    assert floats.tolist() == [[1, 2], [3.5, 4]]
    np.testing.assert_array_equal(old, [*range(8), 3, 4, 5, 6, 7, 3, np.nan])


@SEEDS
@pytest.mark.slow
def test_a_histogram_in_shared_memory(seed):
    def kernel(x, bins):
        s = cuda.shared.array(8, int32)
        t = cuda.threadIdx.x
        if t < 8:
            s[t] = 0
        cuda.syncthreads()
        cuda.atomic.add(s, x[cuda.grid(1)], 1)
        cuda.syncthreads()
        if t < 8:
            cuda.atomic.add(bins, t, s[t])

    x, bins = np.random.default_rng(0).integers(0, 8, 256), np.zeros(8, np.int32)
    run(kernel, 4, 64, x, bins, seed=seed)
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=8))


def test_an_atomic_on_what_nobody_wrote():
    def kernel(out):
        s = cuda.shared.array(1, int32)
        cuda.atomic.add(s, 0, 1)
        cuda.syncthreads()
        out[0] = s[0]

    with pytest.raises(UninitializedRead):
        run(kernel, 1, 32, np.zeros(1, np.int32))


def test_an_atomic_beside_a_plain_write_is_a_race():
    def kernel(x):
        if cuda.grid(1) == 5:
            x[0] = 7
        else:
            cuda.atomic.add(x, 0, 1)

    with pytest.raises(DataRace, match="atomically"):
        run(kernel, 1, 32, np.zeros(1, np.int32))


def test_an_atomic_does_not_order_other_memory():
    def kernel(x, ready):
        if cuda.blockIdx.x == 0:
            x[0] = 1
            cuda.atomic.add(ready, 0, 1)
        else:
            while cuda.atomic.add(ready, 0, 0) == 0:
                pass
            x[1] = x[0]

    with pytest.raises(DataRace, match="another block"):
        run(kernel, 2, 1, np.zeros(2), np.zeros(1, np.int32))


# --- locks -----------------------------------------------------------------------------------------------------------


def counts_under_a_lock(lock, total):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    total[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


@cuda.jit(device=True)
def acquire(lock):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        cuda.nanosleep(100)


@cuda.jit(device=True)
def release(lock):
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


def counts_with_helpers(lock, total):
    acquire(lock)
    total[0] += 1
    release(lock)


def spins_on_a_flag(lock, total):
    done = False
    while not done:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            total[0] += 1
            cuda.threadfence()
            cuda.atomic.exch(lock, 0, 0)
            done = True


@SEEDS
@BOTH
@pytest.mark.parametrize(
    "kernel", [pytest.param(counts_under_a_lock, marks=slow), counts_with_helpers, pytest.param(spins_on_a_flag, marks=slow)]
)
def test_a_lock_lets_one_thread_in_at_a_time(kernel, check, seed):
    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int64)
    assert run(kernel, 3, 40, lock, total, check=check, seed=seed) == []
    assert (total[0], lock[0]) == (120, 0)


@SEEDS
def test_a_lock_given_back_without_a_fence_is_a_race(seed):
    def kernel(lock, total):
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        total[0] += 1
        cuda.atomic.exch(lock, 0, 0)

    with pytest.raises(DataRace):
        run(kernel, 2, 32, np.zeros(1, np.int32), np.zeros(1, np.int64), seed=seed)


def test_a_lock_that_is_never_given_back():
    def kernel(lock, total):
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        total[0] += 1

    with pytest.raises(NeverTrue, match="spins in a loop that no thread is left to end") as caught:
        run(kernel, 1, 32, np.zeros(1, np.int32), np.zeros(1, np.int64), check="fast")
    assert caught.value.line == kernel.__code__.co_firstlineno + 1


@SEEDS
@pytest.mark.slow
def test_the_last_block_adds_up_what_the_others_left(seed):
    def kernel(x, partial, count, total):
        s = cuda.shared.array(1, uint32)
        t = cuda.threadIdx.x
        v = x[cuda.grid(1)]
        for k in range(5):
            v += cuda.shfl_xor_sync(-1, v, 16 >> k)
        if t == 0:
            partial[cuda.blockIdx.x] = v
            cuda.threadfence()
            s[0] = cuda.atomic.inc(count, 0, cuda.gridDim.x - 1)
        cuda.syncthreads()
        if s[0] == cuda.gridDim.x - 1 and t == 0:
            for b in range(cuda.gridDim.x):
                total[0] += partial[b]

    x, total = np.arange(160, dtype=np.float32), np.zeros(1, np.float32)
    run(kernel, 5, 32, x, np.zeros(5, np.float32), np.zeros(1, np.uint32), total, seed=seed)
    assert total[0] == x.sum()


@pytest.mark.slow
def test_the_last_block_without_a_fence_is_a_race():
    def kernel(partial, count, total):
        if cuda.threadIdx.x == 0:
            partial[cuda.blockIdx.x] = cuda.blockIdx.x
            if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1:
                for b in range(cuda.gridDim.x):
                    total[0] += partial[b]

    with pytest.raises(DataRace, match="another block"):
        run(kernel, 4, 32, np.zeros(4), np.zeros(1, np.int32), np.zeros(1))


@SEEDS
def test_blocks_that_wait_for_those_before_them(seed):
    """A running sum over blocks, each waiting for its predecessor's."""

    def kernel(x, sums, ready):
        b = cuda.blockIdx.x
        if cuda.threadIdx.x == 0:
            before = 0
            if b > 0:
                while cuda.atomic.add(ready, b - 1, 0) == 0:
                    pass
                before = sums[b - 1]
            sums[b] = before + x[b]
            cuda.threadfence()
            cuda.atomic.exch(ready, b, 1)

    x, sums = np.arange(1, 9), np.zeros(8, np.int64)
    run(kernel, 8, 33, x, sums, np.zeros(8, np.int32), seed=seed)
    np.testing.assert_array_equal(sums, x.cumsum())


# --- the grid --------------------------------------------------------------------------------------------------------


def shifts_twice(x, y):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    y[i] = x[(i + 1) % x.size]
    grid.sync()
    x[i] = y[(i + 1) % x.size]
    cuda.cg.this_grid().sync()
    y[i] = x[i ^ 1]


@SEEDS
@BOTH
def test_a_barrier_of_the_grid_orders_its_blocks(check, seed):
    x, y = np.arange(160.0), np.zeros(160)
    run(shifts_twice, 4, 40, x, y, check=check, seed=seed)
    want = np.roll(np.arange(160), -2)
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(y, want[np.arange(160) ^ 1])


def test_syncthreads_is_no_barrier_of_the_grid():
    def kernel(x, y):
        i = cuda.grid(1)
        y[i, 0, 0] = x[i]
        cuda.syncthreads()
        x[i] = y[(i + 1) % x.size, 0, 0]

    with pytest.raises(DataRace):
        run(kernel, 4, 32, np.arange(128.0), np.zeros((128, 1, 1)))


def test_a_barrier_of_the_grid_that_a_block_never_meets():
    def kernel(x):
        if cuda.blockIdx.x > 0:
            cuda.cg.this_grid().sync()

    with pytest.raises(DivergentBarrier):
        run(kernel, 2, 32, np.zeros(1))


# --- warps -----------------------------------------------------------------------------------------------------------


def test_match_activemask_and_lanemask():
    def kernel(x, out):
        t = cuda.threadIdx.x
        out[0, t] = cuda.match_any_sync(0xFFFFFFFF, x[t])
        out[1, t], same = cuda.match_all_sync(0xFFFFFFFF, x[t])
        out[2, t] = same
        out[3, t], same = cuda.match_all_sync(0xFFFFFFFF, x[0])
        out[4, t] = same
        out[5, t] = cuda.lanemask_lt()
        if t % 2:
            out[6, t] = cuda.activemask()

    x, out = np.arange(32, dtype=np.int32) % 3, np.zeros((7, 32), np.uint32)
    run(kernel, 1, 32, x, out)
    lanes = np.arange(32)
    np.testing.assert_array_equal(out[0], [sum(1 << int(j) for j in lanes[x == v]) for v in x])
    assert (out[1:3] == 0).all()
    assert (out[3] == 2**32 - 1).all()
    assert (out[4] == 1).all()
    np.testing.assert_array_equal(out[5], (1 << lanes) - 1)
    np.testing.assert_array_equal(out[6], np.where(lanes % 2, 0xAAAAAAAA, 0))


def test_bits_and_choices():
    def kernel(x, wide, out, reals):
        i = cuda.grid(1)
        out[0, i], out[1, i], out[2, i] = cuda.popc(x[i]), cuda.clz(x[i]), cuda.ffs(x[i])
        out[3, i], out[4, i], out[5, i] = cuda.popc(wide[i]), cuda.clz(wide[i]), cuda.ffs(wide[i])
        out[6, i], out[7, i] = cuda.brev(x[i]), cuda.selp(i > 1, 10, 20)
        reals[i] = cuda.fma(float32(3), float32(1 / 3), float32(-1)) + cuda.cbrt(float32(27))

    values = [0, 1, 0x80000000, 0x00F0]
    out, reals = np.zeros((8, 4), np.int64), np.zeros(4, np.float32)
    run(kernel, 1, 4, np.array(values, np.uint32), np.array(values, np.uint64) << 8, out, reals)
    assert out.tolist() == [
        [0, 1, 1, 4], [32, 31, 0, 24], [0, 1, 32, 5], [0, 1, 1, 4], [64, 55, 24, 48], [0, 9, 40, 13],
        [0, 0x80000000, 1, 0x0F000000], [20, 20, 10, 10],
    ]  # fmt: skip
    np.testing.assert_allclose(reals, 3 + np.float64(np.float32(1 / 3)) * 3 - 1, rtol=1e-7)


def test_a_constant_array():
    table = np.arange(5, dtype=np.float32) ** 2

    def kernel(out):
        c = cuda.const.array_like(table)
        out[cuda.grid(1)] = c[cuda.grid(1)]

    out = np.zeros(5)
    run(kernel, 1, 5, out)
    np.testing.assert_array_equal(out, table)


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------

ENDLESS = {
    "a loop without waits": "while x[1] == 0: x[0] += 1",
    "a loop that counts": "i = 0\n    while i < 1 << 62: i += 1\n    x[0] = i",
    "a lock that is never given back": "while cuda.atomic.cas(x, 0, 0, 1) != 0: x[2] += 1",
}


@pytest.mark.slow
@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
def test_ctrl_c_ends_a_launch_that_does_not_end(body, tmp_path):
    file = tmp_path / "endless.py"
    file.write_text(
        textwrap.dedent("""
            import numpy as np
            from numba import cuda
            from numba_kernels.emulator import EmulatedKernel

            def kernel(x):
                BODY

            try:
                print("starts", flush=True)
                EmulatedKernel(kernel, accepted=True).launch(1, 32, (np.zeros(4, np.int32),))
            except KeyboardInterrupt:
                print("interrupted")
        """).replace("BODY", body)
    )
    process = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True)
    killer = threading.Timer(60, process.kill)
    killer.start()
    assert process.stdout.readline() == "starts\n"
    time.sleep(8)  # what it takes to compile
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate()[0] == "interrupted\n"
    killer.cancel()

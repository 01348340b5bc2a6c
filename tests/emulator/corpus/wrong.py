"""Faulty kernels of users' kinds, written anew in the manner of public reports. Each: kernel, grid, block, arguments, the errors
that name its fault (which of two comes first may hang on the schedule)."""

import numpy as np
from numba import cuda, float32, int32

from numba_kernels.emulator import (
    DataRace,
    DivergentBarrier,
    DivergentCollective,
    MaskError,
    NeverTrue,
    OutOfBounds,
    UninitializedRead,
)

F, N = np.float32, np.int32
ALL = 0xFFFFFFFF
MISSING_BARRIER = (DataRace, UninitializedRead)
WRONG = []


def wrong(kinds, grid, block, make, **options):
    def keep(kernel):
        WRONG.append((kernel, grid, block, make, kinds if isinstance(kinds, tuple) else (kinds,), options))
        return kernel

    return keep


def ramp(n, dtype=F):
    return np.arange(n, dtype=dtype)


def zeros(*shape, dtype=F):
    return np.zeros(shape, dtype)


# --- a barrier is missing --------------------------------------------------------------------------------------------


@wrong(MISSING_BARRIER, 1, 64, lambda: (ramp(64), zeros(64)))
def reverse_without_barrier(x, out):
    s = cuda.shared.array(64, float32)
    s[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    out[cuda.threadIdx.x] = s[63 - cuda.threadIdx.x]


@wrong(DataRace, 1, (4, 4), lambda: (zeros(8, 8), zeros(8, 8), zeros(4, 4)))
def matmul_without_second_barrier(a, b, c):
    sa, sb = cuda.shared.array((4, 4), float32), cuda.shared.array((4, 4), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    acc = float32(0)
    for k in range(2):
        sa[x, y] = a[x, y + k * 4]
        sb[x, y] = b[x + k * 4, y] + k
        cuda.syncthreads()
        for j in range(4):
            acc += sa[x, j] * sb[j, y]
    c[x, y] = acc


@wrong(MISSING_BARRIER, 1, (4, 4), lambda: (zeros(4, 4), zeros(4, 4)))
def transpose_without_barrier(a, out):
    tile = cuda.shared.array((4, 4), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    tile[x, y] = a[x, y]
    out[y, x] = tile[y, x]


@wrong(DataRace, 1, 64, lambda: (ramp(64), zeros(1)))
def tree_without_barrier(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        step //= 2
    if t == 0:
        out[0] = s[0]


@wrong(DataRace, 1, 32, lambda: (ramp(32), zeros(1)))
def last_warp_without_syncwarp(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    for k in range(5):
        if t < 16 >> k:
            s[t] += s[t + (16 >> k)]
    out[0] = s[0]


@wrong(DataRace, 1, 32, lambda: (ramp(32), zeros(32)))
def scan_in_place_one_barrier(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    for k in range(5):
        if t >= 1 << k:
            s[t] += s[t - (1 << k)]
        cuda.syncthreads()
    out[t] = s[t]


@wrong(DataRace, 1, 64, lambda: (zeros(64),))
def partial_sums_reused(out):
    s = cuda.shared.array(2, float32)
    t = cuda.threadIdx.x
    for turn in range(2):
        if t % 32 == 0:
            s[t // 32] = turn + t
        cuda.syncthreads()
        out[t] += s[0] + s[1]


@wrong(DataRace, 1, 34, lambda: (ramp(34),))
def stencil_in_place(x):
    t = cuda.threadIdx.x
    if 0 < t < 33:
        x[t] = x[t - 1] + x[t + 1]


@wrong(DataRace, 2, 32, lambda: (ramp(64), zeros(64)))
def syncthreads_for_the_grid(x, y):
    i = cuda.grid(1)
    x[i] = i * 2
    cuda.syncthreads()
    y[i] = x[(i + 1) % 64]


@wrong(DataRace, 2, 32, lambda: (zeros(64, 1, 1),))
def neighbours_of_other_blocks(a):
    i = cuda.grid(1)
    a[i, 0, 0] = i
    cuda.syncthreads()
    a[i, 0, 0] += a[(i + 1) % 64, 0, 0]


@wrong(DataRace, 1, 64, lambda: (zeros(64),))
def syncwarp_for_the_block(out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = 0
    cuda.syncthreads()
    s[t] = t
    cuda.syncwarp()
    out[t] = s[t ^ 32]


@wrong(DataRace, 1, 64, lambda: (zeros(64),))
def fence_for_a_barrier(out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = 0
    cuda.syncthreads()
    s[t] = t
    cuda.threadfence_block()
    out[t] = s[63 - t]


@wrong(DataRace, 1, 32, lambda: (zeros(32),))
def shuffle_for_a_barrier(out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = 0
    cuda.syncwarp()
    s[t] = t
    v = cuda.shfl_sync(ALL, t, 0)
    out[t] = s[t ^ 1] + v


@wrong(DataRace, 1, 16, lambda: (ramp(16)[::-1].copy(),))
def bitonic_without_barrier(x):
    t = cuda.threadIdx.x
    for j in (4, 2, 1):
        other = t ^ j
        if other > t and x[t] > x[other]:
            x[t], x[other] = x[other], x[t]


@wrong(DataRace, 1, 32, lambda: (ramp(32),))
def shift_in_place(x):
    t = cuda.threadIdx.x
    if t > 0:
        x[t] = x[t - 1]


@wrong(DataRace, 1, 64, lambda: (zeros(64),))
def one_initialises_others_add(out):
    s = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 63:
        s[0] = 0
        cuda.atomic.add(s, 0, 1)
    cuda.syncthreads()
    if t == 0:
        s[0] = 5
    out[t] = s[0]


# --- two threads write one place -------------------------------------------------------------------------------------


@wrong(DataRace, 1, 32, lambda: (zeros(1),))
def sum_without_atomic(out):
    out[0] += cuda.threadIdx.x


@wrong(DataRace, 4, 32, lambda: (np.arange(128) % 5, zeros(5, dtype=N)))
def histogram_without_atomic(x, bins):
    bins[x[cuda.grid(1)]] += 1


@wrong(DataRace, 1, 32, lambda: (zeros(2, dtype=N),))
def maximum_without_atomic(out):
    if cuda.threadIdx.x > out[0]:
        out[0] = cuda.threadIdx.x


@wrong(DataRace, 2, 32, lambda: (zeros(1), zeros(32)))
def every_block_writes_the_result(out, unused):
    if cuda.threadIdx.x == 0:
        out[0] = cuda.blockIdx.x + 1


@wrong(DataRace, 1, 32, lambda: (zeros(32),))
def every_lane_stores_the_shuffled_sum(out):
    v = float32(cuda.threadIdx.x)
    for k in range(5):
        v += cuda.shfl_down_sync(ALL, v, 16 >> k)
    out[0] = v


@wrong(DataRace, 2, 32, lambda: (zeros(40),))
def overlapping_blocks(out):
    out[cuda.blockIdx.x * 8 + cuda.threadIdx.x] = cuda.blockIdx.x + 1


@wrong(DataRace, 1, (8, 4), lambda: (zeros(8),))
def second_axis_forgotten(out):
    out[cuda.threadIdx.x] = cuda.threadIdx.y


@wrong(DataRace, 1, 32, lambda: (zeros(8, 32),))
def row_instead_of_column(a):
    a[0, cuda.threadIdx.x // 2] = cuda.threadIdx.x


@wrong(DataRace, 1, 32, lambda: (zeros(34),))
def overlapping_slices(a):
    i = cuda.grid(1)
    a[i : i + 2] = float32(i)


@wrong(DataRace, 1, 32, lambda: (np.zeros(1, [("n", N), ("v", F)]),))
def record_field(r):
    r[0].n += 1


@wrong(DataRace, 1, 32, lambda: ((zeros(1), ramp(32)),))
def array_in_a_tuple(pair):
    pair[0][0] = pair[1][cuda.grid(1)]


@wrong(DataRace, 1, 32, lambda: (zeros(1, dtype=np.complex64),))
def complex_sum(z):
    z[0] += complex(cuda.grid(1), 1)


@wrong(DataRace, 1, 32, lambda: (zeros(4, dtype=np.uint8),))
def bytes_of_a_word(a):
    a[cuda.grid(1) // 8] = cuda.grid(1)


@wrong(DataRace, 1, 32, lambda: (zeros(32), zeros(1, dtype=N)))
def slot_without_atomic(out, count):
    k = count[0]
    count[0] = k + 1
    out[k] = cuda.grid(1)


# --- atomics and locks -----------------------------------------------------------------------------------------------


@wrong(DataRace, 1, 32, lambda: (zeros(1, dtype=N), zeros(1)))
def lock_without_fence(lock, total):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    total[0] += 1
    cuda.atomic.exch(lock, 0, 0)


@wrong(DataRace, 1, 32, lambda: (zeros(1, dtype=N), zeros(1)))
def lock_given_back_plainly(lock, total):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    total[0] += 1
    cuda.threadfence()
    lock[0] = 0


@wrong((DataRace, NeverTrue), 1, 32, lambda: (zeros(1, dtype=N), zeros(1)))
def lock_never_given_back(lock, total):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.threadfence()


@wrong(DataRace, 1, 32, lambda: (zeros(1, dtype=N), zeros(1)))
def two_locks_for_one_place(locks, total):
    total[0] += cuda.atomic.add(locks, 0, 1)


@wrong(DataRace, 2, 1, lambda: (zeros(1, dtype=N), zeros(2)))
def flag_read_plainly(flag, x):
    if cuda.blockIdx.x == 0:
        x[0] = 1
        cuda.threadfence()
        cuda.atomic.exch(flag, 0, 1)
    else:
        x[1] = flag[0]


@wrong(DataRace, 2, 1, lambda: (zeros(1, dtype=N), zeros(2)))
def fence_after_the_flag(flag, x):
    if cuda.blockIdx.x == 0:
        x[0] = 1
        cuda.atomic.exch(flag, 0, 1)
        cuda.threadfence()
    else:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        x[1] = x[0]


@wrong(DataRace, 3, 32, lambda: (zeros(3), zeros(1, dtype=N), zeros(1)))
def last_block_without_fence(parts, count, out):
    if cuda.threadIdx.x == 0:
        parts[cuda.blockIdx.x] = 1
        if cuda.atomic.add(count, 0, 1) == 2:
            out[0] = parts[0] + parts[1] + parts[2]


@wrong(DataRace, 1, 32, lambda: (zeros(1, dtype=N), zeros(32)))
def counter_read_back_plainly(count, out):
    cuda.atomic.add(count, 0, 1)
    out[cuda.threadIdx.x] = count[0]


@wrong(DataRace, 1, 32, lambda: (zeros(1, dtype=N),))
def atomic_and_plain_reset(count):
    cuda.atomic.add(count, 0, 1)
    if cuda.threadIdx.x == 7:
        count[0] = 0


@wrong((NeverTrue, DataRace), 1, 32, lambda: (zeros(1, dtype=N),))
def waits_for_a_flag_that_nobody_sets(flag):
    while cuda.atomic.add(flag, 0, 0) == 0:
        cuda.nanosleep(10)


@wrong((NeverTrue, DataRace), 1, 64, lambda: (zeros(1, dtype=N),))
def waits_for_one_thread_too_many(count):
    cuda.atomic.add(count, 0, 1)
    while cuda.atomic.add(count, 0, 0) < 65:
        pass


@wrong(UninitializedRead, 1, 32, lambda: (zeros(8, dtype=N),))
def shared_histogram_not_cleared(out):
    bins = cuda.shared.array(8, int32)
    cuda.atomic.add(bins, cuda.threadIdx.x % 8, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x < 8:
        out[cuda.threadIdx.x] = bins[cuda.threadIdx.x]


# --- unwritten shared memory -----------------------------------------------------------------------------------------


@wrong(UninitializedRead, 1, 32, lambda: (ramp(20), zeros(32)))
def tail_not_filled(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if t < x.size:
        s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[31 - t]


@wrong(UninitializedRead, 1, 32, lambda: (zeros(32),))
def halo_not_filled(out):
    s = cuda.shared.array(34, float32)
    t = cuda.threadIdx.x
    s[t + 1] = t
    cuda.syncthreads()
    out[t] = s[t] + s[t + 2]


@wrong(UninitializedRead, 1, 32, lambda: (zeros(32),))
def accumulates_into_nothing(out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    for k in range(3):
        s[t] += k
    out[t] = s[t]


@wrong(UninitializedRead, 2, 32, lambda: (zeros(64),))
def written_by_the_first_block_only(out):
    s = cuda.shared.array(1, float32)
    if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
        s[0] = 1
    cuda.syncthreads()
    out[cuda.grid(1)] = s[0]


@wrong(UninitializedRead, 1, 32, lambda: (zeros(32),))
def sum_of_a_half_written_array(out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if t % 2 == 0:
        s[t] = t
    cuda.syncthreads()
    total = float32(0)
    for v in s:
        total += v
    out[t] = total


# --- barriers and collectives ----------------------------------------------------------------------------------------


@wrong(DivergentBarrier, 1, 64, lambda: (zeros(40),))
def barrier_in_a_bounds_check(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = 1
        cuda.syncthreads()


@wrong(DivergentBarrier, 1, 32, lambda: (zeros(1),))
def barriers_in_both_branches(x):
    if cuda.threadIdx.x % 2:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


@wrong(DivergentBarrier, 1, 64, lambda: (zeros(100),))
def barrier_in_a_loop_of_uneven_turns(x):
    for i in range(cuda.threadIdx.x, 100, 64):
        x[i] = i
        cuda.syncthreads()


@wrong(DivergentBarrier, 2, 32, lambda: (zeros(1),))
def grid_barrier_in_a_branch(x):
    if cuda.blockIdx.x == 0:
        cuda.cg.this_grid().sync()


@wrong((DivergentCollective, DivergentBarrier), 1, 32, lambda: (zeros(32),))
def shuffle_in_a_branch(x):
    t = cuda.threadIdx.x
    if t < 16:
        x[t] = cuda.shfl_down_sync(ALL, x[t], 1)
    cuda.syncthreads()


@wrong(MaskError, 1, 32, lambda: (zeros(32),))
def shuffle_from_outside_the_mask(x):
    t = cuda.threadIdx.x
    if t < 16:
        x[t] = cuda.shfl_down_sync(0xFFFF, x[t], 8)


@wrong(MaskError, 1, 32, lambda: (zeros(32),))
def not_in_its_own_mask(x):
    x[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFF, x[cuda.threadIdx.x], 0)


@wrong(MaskError, 1, 48, lambda: (zeros(48),))
def lanes_that_the_block_does_not_have(x):
    t = cuda.threadIdx.x
    x[t] = cuda.shfl_xor_sync(ALL, x[t], 16)


@wrong((DivergentCollective, MaskError), 1, 32, lambda: (zeros(32, dtype=N),))
def vote_with_two_masks(x):
    t = cuda.threadIdx.x
    x[t] = cuda.ballot_sync(0xFFFFFFFF if t < 8 else 0xFFFFFF00, t)


@wrong((DivergentBarrier, DivergentCollective), 1, 32, lambda: (zeros(1),))
def syncwarp_that_half_skips(x):
    if cuda.threadIdx.x < 16:
        cuda.syncwarp()
    cuda.syncthreads()


# --- bounds ----------------------------------------------------------------------------------------------------------


@wrong(OutOfBounds, 2, 64, lambda: (zeros(100),))
def no_bounds_check(x):
    x[cuda.grid(1)] = 1


@wrong(OutOfBounds, 1, 32, lambda: (ramp(32), zeros(32)))
def one_past_the_end(x, out):
    i = cuda.grid(1)
    out[i] = x[i + 1]


@wrong(OutOfBounds, 1, (4, 8), lambda: (zeros(4, 4),))
def axes_exchanged(a):
    x, y = cuda.grid(2)
    a[x, y] = 1


@wrong(OutOfBounds, 1, 64, lambda: (zeros(64),))
def shared_too_small(out):
    s = cuda.shared.array(32, float32)
    s[cuda.threadIdx.x] = 1
    cuda.syncthreads()
    out[cuda.threadIdx.x] = s[0]


@wrong(OutOfBounds, 1, 32, lambda: (zeros(32),))
def local_too_small(out):
    own = cuda.local.array(4, float32)
    for k in range(5):
        own[k + cuda.threadIdx.x * 0] = k
    out[cuda.threadIdx.x] = own[0]


@wrong(OutOfBounds, 1, 32, lambda: (zeros(8, dtype=N),))
def atomic_past_the_end(bins):
    cuda.atomic.add(bins, cuda.threadIdx.x // 3, 1)

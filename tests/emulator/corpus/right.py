"""Right kernels of users' kinds, written anew in the manner of public reports. Each: kernel, grid, block, arguments, and which of
them holds what in the end."""

import math

import numpy as np
from numba import cuda, float32, float64, int32, int64, uint32

F, N = np.float32, np.int32
RIGHT = []


def right(grid, block, make, want, which=0, **options):
    def keep(kernel):
        RIGHT.append((kernel, grid, block, make, want, which, options))
        return kernel

    return keep


def ramp(n, dtype=F):
    return np.arange(n, dtype=dtype)


@right(3, 32, lambda: (ramp(90), ramp(90), np.zeros(90, F)), ramp(90) * 2, 2)
def vector_add(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@right(2, 32, lambda: (ramp(200), np.zeros(200, F)), ramp(200) * 3, 1)
def grid_stride(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] * 3


@right(2, 32, lambda: (ramp(200), np.zeros(200, F)), ramp(200) * 3, 1)
def grid_stride_while(x, out):
    i = cuda.grid(1)
    while i < x.size:
        out[i] = x[i] * 3
        i += cuda.gridsize(1)


@right((2, 2), (4, 8), lambda: (ramp(128).reshape(8, 16), np.zeros((16, 8), F)), ramp(128).reshape(8, 16).T, 1)
def transpose_tile(a, out):
    tile = cuda.shared.array((8, 9), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.x * 4 + x, cuda.blockIdx.y * 8 + y
    tile[x, y] = a[row, column]
    cuda.syncthreads()
    out[column, row] = tile[x, y]


@right(
    (2, 2), (4, 4), lambda: (np.eye(8, dtype=F) * 2, ramp(64).reshape(8, 8), np.zeros((8, 8), F)), ramp(64).reshape(8, 8) * 2, 2
)
def matmul_tiled(a, b, c):
    sa, sb = cuda.shared.array((4, 4), float32), cuda.shared.array((4, 4), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    acc = float32(0)
    for k in range(2):
        sa[tx, ty] = a[x, ty + k * 4]
        sb[tx, ty] = b[tx + k * 4, y]
        cuda.syncthreads()
        for j in range(4):
            acc += sa[tx, j] * sb[j, ty]
        cuda.syncthreads()
    c[x, y] = acc


@right(2, 32, lambda: (ramp(64), np.zeros(2, F)), [496, 1520], 1)
def tree_sum(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 16
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


@right(1, 32, lambda: (ramp(32), np.zeros(32, F)), ramp(32).cumsum(), 1)
def scan_two_buffers(x, out):
    s = cuda.shared.array((2, 32), float32)
    t = cuda.threadIdx.x
    now = 0
    s[0, t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < 32:
        then = 1 - now
        s[then, t] = s[now, t] + (s[now, t - step] if t >= step else float32(0))
        now = then
        step *= 2
        cuda.syncthreads()
    out[t] = s[now, t]


@right(1, 32, lambda: (ramp(32), np.zeros(32, F)), ramp(32).cumsum(), 1)
def scan_in_place(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    for k in range(5):
        v = s[t - (1 << k)] if t >= (1 << k) else float32(0)
        cuda.syncthreads()
        s[t] += v
        cuda.syncthreads()
    out[t] = s[t]


@right(1, 64, lambda: (ramp(64), np.zeros(1, F)), [2016], 1)
def warp_shuffle_sum(x, out):
    parts = cuda.shared.array(2, float32)
    t = cuda.threadIdx.x
    v = x[t]
    for k in range(5):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, 16 >> k)
    if t % 32 == 0:
        parts[t // 32] = v
    cuda.syncthreads()
    if t == 0:
        out[0] = parts[0] + parts[1]


@right(4, 32, lambda: (np.arange(128) % 5, np.zeros(5, N)), np.bincount(np.arange(128) % 5), 1)
def histogram(x, bins):
    cuda.atomic.add(bins, x[cuda.grid(1)], 1)


@right(4, 32, lambda: (ramp(128), np.full(1, -1, F)), [127], 1)
def atomic_maximum(x, out):
    cuda.atomic.max(out, 0, x[cuda.grid(1)])


@right(2, 32, lambda: (np.arange(64) % 3 == 0, np.zeros(1, N)), [22], 1)
def ballot_count(x, out):
    mask = cuda.ballot_sync(0xFFFFFFFF, x[cuda.grid(1)])
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, cuda.popc(mask))


@right(1, 64, lambda: (np.arange(64) % 2, np.zeros(1, N)), [32], 1)
def compaction(x, count):
    if x[cuda.grid(1)] > 0:
        cuda.atomic.add(count, 0, 1)


@right(2, 32, lambda: (np.zeros(1, N), np.zeros(64, N)), np.ones(64), 1)
def claims_a_slot(count, out):
    k = cuda.atomic.add(count, 0, 1)
    out[k] = 1


@right(1, 34, lambda: (ramp(34), np.zeros(32, F)), ramp(34)[1:33] * 3, 1)
def stencil_with_halo(x, out):
    s = cuda.shared.array(34, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if 0 < t < 33:
        out[t - 1] = s[t - 1] + s[t] + s[t + 1]


@right(1, 32, lambda: (np.zeros((32, 3), F),), np.stack([ramp(32)] * 3, 1))
def rows_of_2d(a):
    row = a[cuda.grid(1)]
    for k in range(3):
        row[k] = cuda.grid(1)


@right(1, 32, lambda: (np.zeros((2, 4, 4), F),), ramp(32).reshape(2, 4, 4))
def three_dimensions(a):
    t = cuda.threadIdx.x
    a[t // 16, t // 4 % 4, t % 4] = t


@right(1, (2, 4, 4), lambda: (np.zeros((2, 4, 4), F),), np.indices((2, 4, 4)).sum(0))
def grid_of_three(a):
    x, y, z = cuda.grid(3)
    a[x, y, z] = x + y + z


@right(1, 32, lambda: (np.zeros(32, N),), 31 - np.arange(32))
def syncwarp_reverse(out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = t
    cuda.syncwarp()
    out[t] = s[31 - t]


@right(1, 64, lambda: (ramp(64), np.zeros(64, F)), ramp(64)[::-1], 1, dynamic_shared_bytes=256)
def dynamic_shared(x, out):
    s = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[63 - t]


@right(1, 16, lambda: (np.zeros(16, F), np.zeros(16, N)), ramp(16), 0, dynamic_shared_bytes=128)
def dynamic_shared_two_views(f, n):
    floats = cuda.shared.array(0, float32)
    ints = cuda.shared.array(0, int32)[16:]
    t = cuda.threadIdx.x
    floats[t] = t
    ints[t] = 15 - t
    cuda.syncthreads()
    f[t], n[t] = floats[15 - ints[t]], ints[t]


@right(1, 32, lambda: (np.zeros(32),), np.arange(32) * 6.0)
def local_scratch(out):
    own = cuda.local.array(4, float64)
    for k in range(4):
        own[k] = k * cuda.grid(1)
    total = 0.0
    for k in range(4):
        total += own[k]
    out[cuda.grid(1)] = total


@right(3, 40, lambda: (ramp(100), np.zeros(100, F)), ramp(100), 1)
def early_return_before_barrier_of_others(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    out[i] = x[i]


@right(1, 40, lambda: (np.zeros(40, N),), np.where(np.arange(40) < 33, np.arange(40) ^ 1, 0) * (np.arange(40) < 32))
def partial_warp(out):
    t = cuda.threadIdx.x
    v = cuda.shfl_xor_sync(0xFFFFFFFF, t, 1)
    if t < 32:
        out[t] = v


@right(2, 32, lambda: (np.zeros(64, N),), np.arange(64) % 32)
def shared_reused_after_barrier(out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    for turn in range(3):
        s[t] = t + turn
        cuda.syncthreads()
        out[cuda.grid(1)] = s[t ^ 1] - turn - 1 + 2 * (1 - t % 2) * 0 + (t - (t ^ 1)) + 1
        cuda.syncthreads()


@right(1, 32, lambda: (np.zeros(1, N), np.zeros(1, np.int64)), [32], 1)
def counter_under_a_lock(lock, total):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    total[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


@right(1, 32, lambda: (np.zeros(4, N), np.zeros(4, np.int64)), [8] * 4, 1)
def a_lock_for_each_bucket(locks, totals):
    b = cuda.grid(1) % 4
    done = False
    while not done:
        if cuda.atomic.compare_and_swap(locks[b:], 0, 1) == 0:
            totals[b] += 1
            cuda.threadfence()
            cuda.atomic.exch(locks, b, 0)
            done = True


@right(3, 32, lambda: (ramp(96), np.zeros(3, F), np.zeros(1, N), np.zeros(1, F)), [4560], 3)
def last_block_sums(x, parts, count, out):
    t = cuda.threadIdx.x
    last = cuda.shared.array(1, int32)
    v = x[cuda.grid(1)]
    for k in range(5):
        v += cuda.shfl_xor_sync(0xFFFFFFFF, v, 16 >> k)
    if t == 0:
        parts[cuda.blockIdx.x] = v
        cuda.threadfence()
        last[0] = cuda.atomic.add(count, 0, 1) == 2
    cuda.syncthreads()
    if last[0] and t == 0:
        out[0] = parts[0] + parts[1] + parts[2]


@right(2, 32, lambda: (ramp(64), np.zeros(64, F)), np.roll(ramp(64), -1), 1)
def through_the_grid(x, y):
    i = cuda.grid(1)
    x[i] = x[i] * 2
    cuda.cg.this_grid().sync()
    y[i] = x[(i + 1) % 64] / 2


@right(1, 32, lambda: (np.array([2.5, -2.5, 1e20, np.nan], F), np.zeros(4, N)), [3, -2, 2**31 - 1, 0], 1)
def rounding_to_integers(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = int32(math.ceil(x[i]))


@right(1, 32, lambda: (np.zeros(32, [("a", F), ("b", N)]),), np.array([(t, -t) for t in range(32)], [("a", F), ("b", N)]))
def records(r):
    i = cuda.grid(1)
    r[i].a = i
    r[i]["b"] = -i


@right(1, 32, lambda: (np.zeros(32, np.complex64),), np.arange(32) * (1 + 1j))
def complex_values(z):
    i = cuda.grid(1)
    z[i] = complex(i, i)


@right(1, 32, lambda: ((np.zeros(32, F), ramp(32)),), ramp(32))
def tuple_of_arrays(pair):
    pair[0][cuda.grid(1)] = pair[1][cuda.grid(1)]


@cuda.jit(device=True)
def block_max(s, v):
    t = cuda.threadIdx.x
    s[t] = v
    cuda.syncthreads()
    best = s[0]
    for k in range(1, cuda.blockDim.x):
        best = max(best, s[k])
    cuda.syncthreads()
    return best


@right(1, 32, lambda: (ramp(32), np.zeros(32, F)), np.full(32, 31 + 0), 1)
def device_function_with_barriers(x, out):
    s = cuda.shared.array(32, float32)
    best = block_max(s, x[cuda.threadIdx.x])
    least = -block_max(s, -x[cuda.threadIdx.x])
    out[cuda.threadIdx.x] = best - least


@right(1, 32, lambda: (np.zeros(32, N),), np.arange(32) % 4)
def match_any(out):
    t = cuda.threadIdx.x
    peers = cuda.match_any_sync(0xFFFFFFFF, t % 4)
    out[t] = cuda.ffs(peers) - 1


@right(1, 32, lambda: (np.zeros(1, N), np.zeros(1, N)), [32], 1)
def warp_aggregated_atomic(unused, count):
    mask = cuda.activemask()
    if cuda.laneid == cuda.ffs(mask) - 1:
        cuda.atomic.add(count, 0, cuda.popc(mask))


@right(1, 32, lambda: (np.zeros(32, np.uint64),), (np.arange(32, dtype=np.uint64) * 6364136223846793005 + 1) >> 33)
def linear_congruence(out):
    state = np.uint64(cuda.grid(1)) * np.uint64(6364136223846793005) + np.uint64(1)
    out[cuda.grid(1)] = state >> np.uint64(33)


@right((2, 3), (4, 4), lambda: (np.zeros((8, 12), N),), np.add.outer(np.arange(8), np.arange(12)))
def two_dimensional_loop(a):
    x, y = cuda.grid(2)
    dx, dy = cuda.gridsize(2)
    for i in range(x, a.shape[0], dx):
        for j in range(y, a.shape[1], dy):
            a[i, j] = i + j


@right(1, 32, lambda: (np.zeros(64, F),), np.repeat(ramp(32), 2))
def own_slice(a):
    i = cuda.grid(1)
    a[2 * i : 2 * i + 2] = float32(i)


@right(1, 32, lambda: (ramp(32), np.zeros(32, F)), np.full(32, 496), 1)
def loop_over_shared(x, out):
    s = cuda.shared.array(32, float32)
    s[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    cuda.syncthreads()
    total = float32(0)
    for v in s:
        total += v
    out[cuda.threadIdx.x] = total


@right(1, 64, lambda: (np.zeros(64, N),), [32] * 64)
def counting_barrier(out):
    out[cuda.threadIdx.x] = cuda.syncthreads_count(int32(cuda.threadIdx.x % 2))


@right(1, 96, lambda: (np.zeros(96, N),), np.arange(96) // 32)
def warps_specialise(out):
    t = cuda.threadIdx.x
    s = cuda.shared.array(96, int32)
    if t < 32:
        s[t] = 0
        cuda.syncwarp()
    elif t < 64:
        s[t] = 1
        cuda.syncwarp()
    else:
        s[t] = 2
    cuda.syncthreads()
    out[t] = s[t]


@right(1, 32, lambda: (np.array([3, 1, 2, 0] * 8, N),), sorted([3, 1, 2, 0] * 8))
def odd_even_sort(x):
    t = cuda.threadIdx.x
    for turn in range(32):
        k = 2 * t + turn % 2
        if k + 1 < 32 and x[k] > x[k + 1]:
            x[k], x[k + 1] = x[k + 1], x[k]
        cuda.syncthreads()


@right(1, 16, lambda: (ramp(16)[::-1].copy(),), ramp(16))
def bitonic_sort(x):
    t = cuda.threadIdx.x
    k = 2
    while k <= 16:
        j = k // 2
        while j > 0:
            other = t ^ j
            if other > t:
                up = (t & k) == 0
                if (x[t] > x[other]) == up:
                    x[t], x[other] = x[other], x[t]
            cuda.syncthreads()
            j //= 2
        k *= 2


@right(1, 32, lambda: (np.zeros(32, F), 2**32 + 5), ramp(32) * 0 + 5)
def wide_integers(out, n):
    out[cuda.grid(1)] = n - 4294967296


@right(1, 32, lambda: (np.zeros(32),), np.arange(32) ** 2.0)
def power_and_divide(out):
    i = cuda.grid(1)
    out[i] = (float64(i) ** 3) / i if i > 0 else 0.0


@right(2, 48, lambda: (np.zeros(96, N),), [v for b in range(2) for v in range(48)])
def per_block_ids(out):
    s = cuda.shared.array(1, uint32)
    t = cuda.threadIdx.x
    if t == 0:
        s[0] = cuda.blockIdx.x
    cuda.syncthreads()
    out[s[0] * 48 + t] = t


@right(1, 32, lambda: (np.zeros(32, np.int64),), np.arange(32) // 8 * 8)
def broadcast_by_groups(out):
    t = int64(cuda.threadIdx.x)
    out[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFF, t, cuda.laneid // 8 * 8)


@right(1, 32, lambda: (ramp(32),), np.tile([1, 0], 16) + ramp(32) // 2 * 2)
def exchange_neighbours(x):
    t = cuda.threadIdx.x
    v = x[t ^ 1]
    cuda.syncthreads()
    x[t] = v


@right(1, 32, lambda: (np.zeros((4, 8), N),), np.arange(32).reshape(4, 8))
def reshaped(a):
    a.reshape(32)[cuda.grid(1)] = cuda.grid(1)


@right(1, 8, lambda: (np.zeros(8, np.uint8),), np.arange(8))
def single_bytes(a):
    a[cuda.grid(1)] = cuda.grid(1)


@right(1, 32, lambda: (ramp(64)[::2], np.zeros(32, F)), ramp(64)[::2], 1)
def strided_argument(x, out):
    out[cuda.grid(1)] = x[cuda.grid(1)]


@right(1, 32, lambda: (np.zeros(32, N), np.array([1, 0] * 16, np.bool_)), [1, 0] * 16)
def booleans(out, flags):
    out[cuda.grid(1)] = 1 if flags[cuda.grid(1)] else 0


@right(1, 32, lambda: (np.zeros(32, F),), np.minimum(ramp(32), 5))
def break_and_continue(out):
    i = cuda.grid(1)
    k = 0
    while True:
        if k == 5:
            break
        if k >= i:
            break
        k += 1
    out[i] = k


@right(1, 64, lambda: (np.zeros(64, N),), [1] * 64)
def fence_and_syncwarp_pair(out):
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    s[t] = 1
    cuda.threadfence_block()
    cuda.syncwarp()
    out[t] = s[t // 32 * 32 + (t + 1) % 32]


@right(1, 32, lambda: (np.zeros(3, N),), [0, 31, 496])
def minimum_maximum_total(out):
    t = cuda.threadIdx.x
    cuda.atomic.min(out, 0, t)
    cuda.atomic.max(out, 1, t)
    cuda.atomic.add(out, 2, t)


@right(1, 32, lambda: (np.zeros(32, N),), [(7 * t) % 32 for t in range(32)])
def permutation(out):
    t = cuda.threadIdx.x
    s = cuda.shared.array(32, int32)
    s[(t * 23) % 32] = t
    cuda.syncthreads()
    out[t] = s[t]


@right(1, 32, lambda: (np.ones(32, F),), [0] * 16 + [1] * 16)
def half_the_threads_write(x):
    t = cuda.threadIdx.x
    if t < 16:
        x[t] = 0
    cuda.syncthreads()
    x[t] = x[t]


@right(1, 32, lambda: (ramp(32), np.zeros(32, F)), ramp(32), 1)
def copies_of_whole_arrays_by_one(x, out):
    if cuda.grid(1) == 0:
        out[:] = x


@right(1, 32, lambda: (np.zeros(32, N),), [k // 4 for k in range(32)])
def three_dimensional_shared(out):
    s = cuda.shared.array((2, 4, 4), int32)
    t = cuda.threadIdx.x
    s[t // 16, t // 4 % 4, t % 4] = t // 4
    cuda.syncthreads()
    out[t] = s[t // 16, t // 4 % 4, 3 - t % 4]

"""Threads that end before others: what does not wait for them, what may not do without them. Right kernels and faulty ones."""

import numpy as np
from numba import cuda, float32

from numba_kernels.emulator import DataRace, DivergentBarrier, MaskError

from .right import F, N, ramp, right
from .wrong import ALL, wrong, zeros

# --- warps -----------------------------------------------------------------------------------------------------------


@right(1, 32, lambda: (ramp(32), zeros(32)), [sum(range(32)), *[0] * 31], 1)
def the_last_steps_of_a_tree_by_few_lanes(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 4:
        total = float32(0)
        for k in range(t, 32, 4):
            total += s[k]
        cuda.syncwarp()
        s[t] = total
        cuda.syncwarp()
        if t == 0:
            out[0] = s[0] + s[1] + s[2] + s[3]


@right(1, 48, lambda: (ramp(48), zeros(48, dtype=N)), [*[0] * 4, *[28] * 28, *[16] * 16], 1)
def votes_of_the_lanes_that_are_left(x, out):
    t = cuda.threadIdx.x
    if x[t] > 3 and cuda.all_sync(ALL, x[t] > 3):
        out[t] = cuda.popc(cuda.ballot_sync(ALL, 1))


@right(1, 32, lambda: (ramp(32), zeros(32)), [*range(8, 16), *range(8), *[-1] * 16], 1)
def shuffles_among_the_lanes_that_are_left(x, out):
    t = cuda.threadIdx.x
    if t >= 16:
        out[t] = -1
    else:
        out[t] = cuda.shfl_xor_sync(ALL, x[t], 8)


@right(1, 32, lambda: (zeros(32, dtype=N),), [*[8, 8] * 4, *[0] * 24])
def matches_of_the_lanes_that_are_left(out):
    t = cuda.threadIdx.x
    if t < 8:
        mask, same = cuda.match_all_sync(ALL, 5)
        out[t] = cuda.popc(mask) if same else -1


@wrong(MaskError, 1, 32, lambda: (ramp(32), zeros(32)))
def a_shuffle_from_a_lane_that_has_ended(x, out):
    t = cuda.threadIdx.x
    if t < 16:
        out[t] = cuda.shfl_down_sync(ALL, x[t], 1)


@wrong(MaskError, 1, 64, lambda: (ramp(64), zeros(64)))
def a_shuffle_from_a_lane_that_returned(x, out):
    t = cuda.threadIdx.x
    if t >= 40:
        return
    out[t] = cuda.shfl_xor_sync(ALL, x[t], 8)


@wrong(DataRace, 1, 32, lambda: (ramp(32), zeros(32)))
def what_an_ended_lane_wrote_is_not_ordered_by_syncwarp(x, out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = 0
    cuda.syncthreads()
    if t < 16:
        cuda.syncwarp()
        out[t] = s[t + 16]
    else:
        s[t] = x[t]


# --- blocks ----------------------------------------------------------------------------------------------------------


@right(2, 64, lambda: (ramp(100), zeros(100)), [*range(1, 64), 0, *range(65, 100), 64], 1)
def barriers_after_a_return_out_of_bounds(x, out):
    s = cuda.shared.array(64, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i >= x.size:
        return
    s[t] = x[i]
    cuda.syncthreads()
    held = min(64, x.size - i + t)
    value = s[(t + 1) % held]
    cuda.syncthreads()
    out[i] = value


@wrong(DivergentBarrier, 1, 64, lambda: (ramp(64), zeros(64)))
def a_warp_goes_around_a_barrier_to_its_end(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t < 32:
        cuda.syncthreads()
        out[t] += 1


@wrong(DivergentBarrier, 1, 96, lambda: (zeros(96),))
def some_return_and_some_run_on_to_another_barrier(out):
    t = cuda.threadIdx.x
    if t >= 64:
        return
    if t >= 32:
        cuda.syncthreads()
    out[t] = 1
    cuda.syncthreads()


# --- the grid --------------------------------------------------------------------------------------------------------


@right(3, 32, lambda: (ramp(70), zeros(70)), [*range(2, 70), 0, 1], 1)
def a_barrier_of_the_grid_after_a_return_out_of_bounds(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    out[i] = x[(i + 1) % x.size]
    cuda.cg.this_grid().sync()
    value = out[(i + 1) % x.size]
    cuda.cg.this_grid().sync()
    out[i] = value


@right(2, 40, lambda: (zeros(80),), np.where(np.arange(80) % 5 == 0, 2, 1).astype(F))
def a_barrier_of_the_grid_in_a_branch_with_each_first_thread(out):
    i = cuda.grid(1)
    out[i] = 1
    if i % 5 == 0:
        cuda.cg.this_grid().sync()
        out[i] += out[(i + 1) % out.size]


@wrong(DivergentBarrier, 3, 32, lambda: (zeros(64),))
def a_block_that_returns_before_a_barrier_of_the_grid(out):
    i = cuda.grid(1)
    if i >= out.size:
        return
    cuda.cg.this_grid().sync()
    out[i] = 1


@wrong(DivergentBarrier, 2, 32, lambda: (zeros(64),))
def a_first_thread_that_ends_before_a_barrier_of_the_grid(out):
    i = cuda.grid(1)
    if i != 32:
        cuda.cg.this_grid().sync()
        out[i] = 1


@wrong(DivergentBarrier, 2, 32, lambda: (zeros(64),))
def a_barrier_of_the_grid_and_one_of_the_block(out):
    if cuda.threadIdx.x < 16:
        cuda.cg.this_grid().sync()
    else:
        cuda.syncthreads()
    out[cuda.grid(1)] = 1

"""Forms that users write: inner functions, functions as arguments, collectives anywhere, returns before the end, float16, vector
types, names for shapes and dtypes, random numbers. Right ones, and the same with a fault."""

import numpy as np
from numba import cuda, float32, int32
from numba.cuda import libdevice
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_dtype, xoroshiro128p_uniform_float32
from numba.types import float16

from numba_kernels.emulator import DataRace, DivergentBarrier, DivergentCollective, MaskError, emulating

from .right import F, N, ramp, right
from .wrong import ALL, MISSING_BARRIER, wrong, zeros

H = np.float16


# --- functions -------------------------------------------------------------------------------------------------------


@cuda.jit(device=True)
def folded(value, join):
    """A warp's values, joined; every lane has the result."""
    for k in range(5):
        value = join(value, cuda.shfl_xor_sync(ALL, value, 16 >> k))
    return value


@cuda.jit(device=True)
def larger(a, b):
    return a if a > b else b


@cuda.jit(device=True)
def twice(function, value):
    return function(function(value))


@cuda.jit(device=True)
def after_a_barrier(value, bound):
    """Returns before its end, after a barrier, also out of a loop."""
    cuda.syncthreads()
    if value > bound:
        return bound
    for k in range(4):
        if value + k > 5:
            return value + k
    return value


@cuda.jit(device=True)
def reversed_in(array, held, t):
    held[t] = array[t]
    cuda.syncthreads()
    return held[31 - t]


@cuda.jit(device=True)
def reversed_like(array, t):
    return reversed_in(array, cuda.shared.array(32, array.dtype), t)


@right(1, 32, lambda: (ramp(32), zeros(32)), np.full(32, 31 + 496, F), 1)
def a_device_function_as_an_argument(x, out):
    t = cuda.threadIdx.x
    out[t] = folded(x[t], larger) + folded(x[t], lambda a, b: a + b)


@right(1, 32, lambda: (ramp(32), zeros(32)), ramp(32) * 9 + 4, 1)
def an_inner_function_and_a_lambda(x, out):
    t = cuda.threadIdx.x
    factor = 3

    def scaled(v):
        return v * factor + 1

    again = lambda v: twice(scaled, v)  # noqa: E731
    out[t] = again(x[t])


@wrong(MISSING_BARRIER, 1, 64, lambda: (ramp(64), zeros(64)))
def an_inner_function_that_reads_what_others_write(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x

    def neighbour(k):
        return s[63 - k]  # the barrier before it is missing

    s[t] = x[t]
    out[t] = neighbour(t)


@wrong(MaskError, 1, 32, lambda: (ramp(32), zeros(32)))
def a_lambda_with_a_shuffle_in_one_branch(x, out):
    t = cuda.threadIdx.x
    next_lane = lambda v: cuda.shfl_down_sync(ALL, v, 1)  # noqa: E731
    out[t] = next_lane(x[t]) if t < 16 else x[t]


@right(1, 32, lambda: (ramp(32), zeros(32)), [0, 1, 2, 6, 6, 6, *range(6, 20), *[20] * 12], 1)
def a_return_after_a_barrier(x, out):
    t = cuda.threadIdx.x
    out[t] = after_a_barrier(x[t], float32(20))


@wrong(DivergentBarrier, 1, 64, lambda: (ramp(64), zeros(64)))
def a_return_before_a_barrier(x, out):
    def halves(v):
        if v > 31:
            return v
        cuda.syncthreads()
        return v / 2

    t = cuda.threadIdx.x
    out[t] = halves(x[t])


@cuda.jit(device=True)
def last(*given):
    return given[-1]


@cuda.jit(device=True)
def folded_with(join, first, *others):
    """All values joined, the later ones two by two, each joined over the warp."""
    if len(others) == 0:
        return folded(first, join)
    total = folded_with_first(join, *others)
    return join(folded(first, join), total)


@cuda.jit(device=True)
def folded_with_first(join, *values):
    total = folded(values[0], join)
    for value in values:
        total = join(total, value)
    return total


@right(1, 32, lambda: (ramp(32), zeros(32)), [34 + t if t > 7 else 41 for t in range(32)], 1)
def as_many_arguments_as_a_call_gives(x, out):
    def added(a, b, by=1):
        return a + b + by - 1

    t = cuda.threadIdx.x
    out[t] = folded_with(larger, x[t]) + last(1, x[t]) + added(1, 2)
    out[t] = max(out[t], folded_with(larger, x[t], float32(41) - x[t], -x[t]))


@wrong(DataRace, 1, 32, lambda: (zeros(32), zeros(32)))
def an_array_among_the_rest_that_is_written_too(x, out):
    t = cuda.threadIdx.x
    out[t] = rotated(t, x, x, 0)


@cuda.jit(device=True)
def rotated(t, held, *more):
    held[t] = t
    return more[0][(t + 1) % 32]


# --- collectives anywhere ----------------------------------------------------------------------------------------------


@right(1, 32, lambda: (ramp(32) % 7, zeros(32)), np.full(32, 6, F), 1)
def a_vote_in_a_while_condition(x, out):
    t = cuda.threadIdx.x
    level = 0
    while cuda.any_sync(ALL, x[t] > level):
        level += 1
    out[t] = level


@right(1, 64, lambda: (ramp(64), zeros(64)), np.full(64, 64 + 1 + 7, F), 1)
def collectives_in_and_or_and_a_conditional(x, out):
    t = cuda.threadIdx.x
    out[t] = 64 if x[t] >= 0 and cuda.syncthreads_count(1) == 64 else 0
    if x[t] < 0 or cuda.ballot_sync(ALL, x[t] < 1000) == -1:
        out[t] += 1
    out[t] += cuda.shfl_sync(ALL, 7, 3) if x.size == 64 else 0


@wrong(DivergentCollective, 1, 32, lambda: (ramp(32), zeros(32)))
def a_vote_that_some_lanes_skip(x, out):
    t = cuda.threadIdx.x
    if x[t] > 3 and cuda.any_sync(ALL, x[t] > 30):
        out[t] = 1
    cuda.syncwarp()


@wrong(DivergentBarrier, 1, 64, lambda: (ramp(64), zeros(64)))
def a_barrier_in_an_or_that_some_skip(x, out):
    t = cuda.threadIdx.x
    if x[t] > 40 or cuda.syncthreads_or(1):
        out[t] = 1


# --- shapes and dtypes -------------------------------------------------------------------------------------------------


@right(1, 32, lambda: (ramp(32), zeros(32)), ramp(32)[::-1], 1)
def a_shape_and_a_dtype_in_local_names(x, out):
    columns = 2
    shape, kind = (32, columns), x.dtype
    s = cuda.shared.array(shape, kind)
    t = cuda.threadIdx.x
    s[t, 1] = x[t]
    cuda.syncthreads()
    out[t] = s[31 - t, 1]


@right(1, 32, lambda: (np.arange(32, dtype=np.int64) << 40, np.zeros(32, np.int64)), np.arange(32)[::-1] << 40, 1)
def the_dtype_of_an_argument(x, out):
    out[cuda.threadIdx.x] = reversed_like(x, cuda.threadIdx.x)


@wrong(MISSING_BARRIER, 1, 64, lambda: (ramp(64, np.int64), zeros(64)))
def a_dtype_s_array_without_a_barrier(x, out):
    n = 64
    s = cuda.shared.array(n, x.dtype)
    t = cuda.threadIdx.x
    s[t] = x[t]
    out[t] = s[63 - t]


# --- float16 -------------------------------------------------------------------------------------------------------------


@right(1, 32, lambda: (ramp(32, H) / H(7), np.zeros(32, H)), ramp(32, H) / H(7) * H(3) - H(0.1), 1)
def float16_arithmetic(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t] * float16(3) - float16(0.1)


@right(1, 64, lambda: (np.full(64, 0.125, H), np.zeros(1, H)), [8], 1)
def float16_in_shared_memory(x, out):
    s = cuda.shared.array(64, float16)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            s[t] = cuda.fp16.hadd(s[t], s[t + step])
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[0] = s[0]


@wrong(DataRace, 1, 64, lambda: (np.full(64, 0.125, H), np.zeros(1, H)))
def float16_sum_without_barriers(x, out):
    s = cuda.shared.array(64, float16)
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


# --- vector types, libraries ---------------------------------------------------------------------------------------------


@right(1, 32, lambda: (ramp(32), zeros(32)), ramp(32) * 4 + 6, 1)
def vector_types(x, out):
    t = cuda.threadIdx.x
    pair = cuda.float32x2(x[t], x[t] + float32(1))
    four = cuda.float32x4(pair, x[t] + float32(2), x[t] + float32(3))
    out[t] = four.x + four.y + four.z + four.w


@wrong(MISSING_BARRIER, 1, 64, lambda: (ramp(64), zeros(64)))
def vector_types_of_unready_elements(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    pair = cuda.float32x2(s[t], s[63 - t])
    out[t] = pair.x + pair.y


@right(1, 32, lambda: (ramp(32), zeros(32)), ramp(32) * 3 + np.sqrt(ramp(32)) + 2, 1)
def functions_of_libdevice(x, out):
    t = cuda.threadIdx.x
    out[t] = libdevice.fmaf(x[t], float32(3), libdevice.sqrtf(x[t])) + cuda.libdevice.popc(5)


@wrong(MISSING_BARRIER, 1, 64, lambda: (ramp(64), zeros(64)))
def functions_of_libdevice_of_what_others_write(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = libdevice.sqrtf(x[t])
    out[t] = libdevice.fmaxf(s[t], s[63 - t])


def random_states(n):
    with emulating():
        return np.asarray(create_xoroshiro128p_states(n, seed=1)).view(xoroshiro128p_dtype)


@right(2, 32, lambda: (random_states(64), np.zeros(1, N)), [64], 1)
def random_numbers(states, inside):
    value = xoroshiro128p_uniform_float32(states, cuda.grid(1))
    if 0 <= value < 1:
        cuda.atomic.add(inside, 0, 1)


@wrong(DataRace, 2, 32, lambda: (random_states(64), zeros(64)))
def random_numbers_from_one_state(states, out):
    out[cuda.grid(1)] = xoroshiro128p_uniform_float32(states, int32(cuda.threadIdx.x // 2))

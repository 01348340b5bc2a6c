"""Kernels that are wrong on purpose: each fault is found, and named with kernel, line, block and thread."""

import inspect
import re

import numpy as np
import pytest
from llvmlite import ir
from numba import cuda, float32, int32, int64, types
from numba.extending import intrinsic

from numba_kernels.backend import clusters
from numba_kernels.backend.memory import make_shared_load, make_shared_store
from numba_kernels.emulator import (
    CompileError,
    DataRace,
    DivergentBarrier,
    DivergentCollective,
    EmulatedKernel,
    EmulatorError,
    MaskError,
    NeverTrue,
    OutOfBounds,
    UninitializedRead,
    UnsupportedKernel,
    environment,
)

ALL = 0xFFFFFFFF

store_part, load_part = make_shared_store(4), make_shared_load(4)


def found(kernel, kind, block, *args, grid=1, check="fast", **options):
    """The error of a launch; its place is held against the line of the kernel marked ``# here``."""
    with pytest.raises(EmulatorError) as caught:
        EmulatedKernel(kernel, check=check).launch(grid, block, args, **options)
    error = caught.value
    assert type(error) is kind
    lines, first = inspect.getsourcelines(kernel)
    marked = [first + k for k, line in enumerate(lines) if "# here" in line]
    assert marked == [] or error.line == marked[0], error
    assert error.kernel == kernel.__name__
    assert error.file == __file__
    if kind not in (UnsupportedKernel, CompileError):
        assert re.match(
            rf"{kernel.__name__}, test_wrong_kernels.py:{error.line}, block \(\d+, \d+, \d+\), thread \d+: ", str(error)
        )
    return error


# --- barriers --------------------------------------------------------------------------------------------------------


def test_a_barrier_that_half_the_block_skips():
    def kernel(x):
        t = cuda.threadIdx.x
        if t < 32:
            x[t] = 1
            cuda.syncthreads()  # here
        x[t] = 2

    error = found(kernel, DivergentBarrier, 64, np.zeros(64), grid=(1, 2))
    assert (error.block, error.thread) == ((0, 0, 0), 0)
    assert "thread 32 has ended" in error.reason


def test_two_barriers_in_two_branches_are_not_one():
    def kernel(x):
        if cuda.blockIdx.y == 1 and cuda.threadIdx.x == 7:
            cuda.syncthreads()
        else:
            cuda.syncthreads()  # here

    error = found(kernel, DivergentBarrier, 32, np.zeros(64), grid=(1, 2))
    assert (error.block, error.thread) == ((0, 1, 0), 0)
    assert "thread 7 waits at cuda.syncthreads" in error.reason


def test_a_loop_that_threads_leave_at_different_turns():
    def kernel(x):
        i = cuda.threadIdx.x
        while i < 100:
            cuda.syncthreads()  # here
            i += 64

    assert found(kernel, DivergentBarrier, 64, np.zeros(1)).thread == 0


# --- warp collectives ------------------------------------------------------------------------------------------------


def test_a_shuffle_in_a_branch_that_not_every_lane_takes():
    def kernel(x):
        t = cuda.threadIdx.x
        if t % 2 == 0:
            x[t] = cuda.shfl_xor_sync(ALL, x[t], 2)  # here
        cuda.syncthreads()
        x[t] = 0

    error = found(kernel, DivergentCollective, 64, np.zeros(64, np.float32))
    assert error.thread == 0
    assert "names lane 1, but thread 1 waits at cuda.syncthreads" in error.reason


def test_the_same_shuffle_at_two_sites():
    def kernel(x):
        t = cuda.threadIdx.x
        if t < 8:  # noqa: SIM108
            v = cuda.shfl_sync(ALL, x[t], 0)  # here
        else:
            v = cuda.shfl_sync(ALL, x[t], 0)
        x[t] = v

    error = found(kernel, DivergentCollective, 32, np.zeros(64, np.float32), schedule_seed=0)
    assert "thread 8 waits at cuda.shfl_sync" in error.reason


def test_lanes_that_disagree_about_the_mask():
    def kernel(x):
        t = cuda.threadIdx.x
        mask = 0xFFFF if t < 4 else ALL
        x[t] = cuda.shfl_sync(mask, x[t], 0)  # here

    found(kernel, DivergentCollective, 32, np.zeros(64, np.float32))


def test_a_lane_outside_its_own_mask():
    def kernel(x):
        t = cuda.threadIdx.x
        x[t] = cuda.shfl_xor_sync(0xFFFF, x[t], 1)  # here

    error = found(kernel, MaskError, 32, np.zeros(64, np.float32))
    assert error.thread == 16


def test_a_shuffle_that_reads_a_lane_outside_the_mask():
    def kernel(x):
        t = cuda.threadIdx.x
        if t < 16:
            x[t] = cuda.shfl_down_sync(0xFFFF, x[t], 4)  # here

    error = found(kernel, MaskError, 32, np.zeros(64, np.float32))
    assert error.thread == 12
    assert "reads lane 16" in error.reason


def test_a_shuffle_that_reads_a_lane_that_the_block_does_not_have():
    def kernel(x):
        t = cuda.threadIdx.x
        x[t] = cuda.shfl_xor_sync(ALL, x[t], 16)  # here

    assert found(kernel, MaskError, 40, np.zeros(64, np.float32)).thread == 32


def test_a_shuffle_that_reads_a_lane_that_has_returned():
    def kernel(x):
        t = cuda.threadIdx.x
        if t == 5:
            return
        x[t] = cuda.shfl_xor_sync(ALL, x[t], 1)  # here

    assert found(kernel, MaskError, 32, np.zeros(64, np.float32)).thread == 4


# --- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["fast", "full"])
def test_a_store_past_the_end(check):
    def kernel(x, y):
        i = cuda.grid(1)
        v = x[i % 8]
        y[i] = v  # here
        y[0] = 1

    error = found(kernel, OutOfBounds, 32, np.zeros(8), np.zeros(40), grid=2, check="fast")
    assert (error.block, error.thread) == ((1, 0, 0), 8)


def test_the_full_check_says_which_index():
    def kernel(x):
        cuda.syncthreads()
        x[cuda.blockIdx.x, cuda.threadIdx.x + 1] = 0  # here

    error = found(kernel, OutOfBounds, 32, np.zeros((2, 32)), check="full")
    assert error.thread == 31
    assert "index 32 is out of bounds for axis 1 with size 32" in error.reason


@pytest.mark.parametrize("check", ["fast", "full"])
def test_a_read_past_the_end_in_a_loop_condition_after_other_lines(check):
    def kernel(x, y):
        cuda.syncthreads()
        i = 0
        while x[i] == 0:  # here
            y[0] = i
            i += 1

    assert found(kernel, OutOfBounds, 1, np.zeros(8), np.zeros(1), check=check).thread == 0


def test_a_fault_after_a_device_function_is_not_blamed_on_it():
    def kernel(x, y):
        t = cuda.threadIdx.x
        y[t] = first_of(x)  # here

    found(kernel, OutOfBounds, 32, np.zeros(8), np.zeros(8))


def test_a_fault_in_a_device_function_names_its_line():
    def kernel(x, y):
        t = cuda.threadIdx.x
        if t == 3:
            y[0] = first_of(x[8:])

    error = found(kernel, OutOfBounds, 32, np.zeros(8), np.zeros(8))
    assert error.line == inspect.getsourcelines(first_of.py_func)[1] + 2
    assert error.thread == 3
    assert "(in first_of)" in error.reason


@cuda.jit(device=True)
def first_of(x):
    return x[0]


@intrinsic
def store_one(typingctx, array, position):
    def codegen(context, builder, sig, args):
        values = context.make_array(array)(context, builder, args[0])
        outside = builder.icmp_unsigned(">=", args[1], values.nitems)
        with builder.if_then(outside, likely=False):
            context.call_conv.return_user_exc(builder, IndexError, ("access outside the buffer",))
        builder.store(ir.Constant(ir.DoubleType(), 1.0), builder.gep(values.data, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


def test_an_intrinsic_that_refuses_its_index_is_reported_alike():
    def kernel(x):
        cuda.syncthreads()
        store_one(x, cuda.threadIdx.x)  # here
        x[0] = 2

    error = found(kernel, OutOfBounds, 32, np.zeros(20))
    assert error.thread == 20
    assert "access outside the buffer" in error.reason


# --- the full check --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [float32, int32])
def test_shared_memory_that_nothing_wrote(dtype):
    def kernel(y):
        t = cuda.threadIdx.x
        s = cuda.shared.array(64, dtype)
        if t < 20:
            s[t] = 1
        cuda.syncthreads()
        y[t] = s[t]  # here

    error = found(kernel, UninitializedRead, 64, np.zeros(64), check="full")
    assert error.thread == 20


def test_shared_memory_that_only_another_block_wrote():
    def kernel(y):
        t = cuda.threadIdx.x
        s = cuda.shared.array(64, float32)
        if cuda.blockIdx.x == 0:
            s[t] = 1
        cuda.syncthreads()
        y[cuda.grid(1)] = s[t]  # here

    assert found(kernel, UninitializedRead, 32, np.zeros(64), grid=2, check="full").block == (1, 0, 0)


def test_an_accumulator_in_shared_memory_that_starts_unwritten():
    def kernel(y):
        s = cuda.shared.array(32, float32)
        s[cuda.threadIdx.x] += 1  # here

    assert found(kernel, UninitializedRead, 32, np.zeros(64), check="full").thread == 0


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_missing_barrier_is_found_in_every_schedule(seed):
    def kernel(y):
        t = cuda.threadIdx.x
        s = cuda.shared.array(64, float32)
        s[t] = t
        y[t] = s[63 - t]

    with pytest.raises((DataRace, UninitializedRead), match=r"kernel, test_wrong_kernels\.py:"):
        EmulatedKernel(kernel, check="full").launch(1, 64, (np.zeros(64),), schedule_seed=seed)


def test_a_missing_barrier_names_both_sides():
    def kernel(y):
        t = cuda.threadIdx.x
        s = cuda.shared.array(64, float32)
        s[t] = 0
        cuda.syncthreads()
        s[t] = t  # here
        y[t] = s[t ^ 32]

    error = found(kernel, DataRace, 64, np.zeros(64), check="full")
    assert error.thread == 32
    assert f"writes an element that thread 0 read in line {error.line + 1}, and there is no barrier" in error.reason


def test_a_buffer_of_partials_that_is_reused_without_a_barrier():
    def kernel(x, y):
        t = cuda.threadIdx.x
        partial = cuda.shared.array(2, float32)
        for turn in range(2):
            v = x[t] * (turn + 1)
            for k in range(5):
                v += cuda.shfl_xor_sync(ALL, v, 16 >> k)
            if t % 32 == 0:
                partial[t // 32] = v  # here
            cuda.syncthreads()
            y[turn, t] = partial[0] + partial[1]

    error = found(kernel, DataRace, 64, np.ones(64, np.float32), np.zeros((2, 64)), check="full")
    assert "writes an element that thread" in error.reason
    assert "read in line" in error.reason


def test_a_down_shuffle_after_which_every_lane_stores():
    def kernel(x, total):
        t = cuda.threadIdx.x
        v = x[t]
        for k in range(5):
            v += cuda.shfl_down_sync(ALL, v, 16 >> k)
        total[cuda.blockIdx.x] = v  # here

    error = found(kernel, DataRace, 32, np.arange(32, dtype=np.float32), np.zeros(1, np.float32), check="full")
    assert error.thread == 1
    assert "writes an element that thread 0 wrote" in error.reason
    results = set()
    for seed in range(4):  # and without the full check, schedules disagree
        total = np.zeros(1, np.float32)
        EmulatedKernel(kernel).launch(1, 32, (np.arange(32, dtype=np.float32), total), schedule_seed=seed)
        results.add(float(total[0]))
    assert len(results) > 1


def test_two_blocks_that_write_one_element():
    def kernel(y):
        if cuda.threadIdx.x == 0:
            y[cuda.blockIdx.x // 2] = 1 + cuda.blockIdx.x  # here

    error = found(kernel, DataRace, 32, np.zeros(4), grid=4, check="full")
    assert error.block == (1, 0, 0)
    assert "another block" in error.reason


def test_a_shuffle_does_not_order_memory_but_syncwarp_does():
    def unordered(y):
        t = cuda.threadIdx.x
        s = cuda.shared.array(32, int32)
        s[t] = t
        v = cuda.shfl_xor_sync(ALL, t, 1)
        y[t] = s[v]  # here

    def ordered(y):
        t = cuda.threadIdx.x
        s = cuda.shared.array(32, int32)
        s[t] = t
        cuda.syncwarp()
        y[t] = s[t ^ 1]
        cuda.syncwarp(ALL)
        s[t ^ 3] = t

    found(unordered, DataRace, 32, np.zeros(32), check="full")
    y = np.zeros(32)
    EmulatedKernel(ordered, check="full").launch(1, 32, (y,), schedule_seed=4)
    np.testing.assert_array_equal(y, np.arange(32) ^ 1)


def test_syncwarp_does_not_order_two_warps():
    def kernel(y):
        t = cuda.threadIdx.x
        s = cuda.shared.array(64, int32)
        s[t] = t  # here
        s[t ^ 32] = 0
        cuda.syncwarp()

    found(kernel, DataRace, 64, np.zeros(64), check="full")


def test_syncwarp_of_half_a_warp_orders_that_half_alone():
    def kernel(y, partner):
        t = cuda.threadIdx.x
        s = cuda.shared.array(32, int32)
        s[t] = t
        if t < 16:
            cuda.syncwarp(0xFFFF)
        else:
            cuda.syncwarp(0xFFFF0000)
        y[t] = s[t ^ partner]  # here

    found(kernel, DataRace, 32, np.zeros(32), 16, check="full")
    EmulatedKernel(kernel, check="full").launch(1, 32, (np.zeros(32), 8))


def test_a_described_intrinsic_is_followed():
    @intrinsic
    def store(typingctx, array, position):
        def codegen(context, builder, sig, args):
            values = context.make_array(array)(context, builder, args[0])
            place = builder.gep(values.data, [args[1]])
            builder.store(builder.fadd(builder.load(place), ir.Constant(ir.DoubleType(), 1.0)), place)
            return context.get_dummy_value()

        return types.void(array, types.int64), codegen

    store.memory_access = ("write", 1)

    def kernel(y):
        store(y, cuda.threadIdx.x // 2)  # here

    assert found(kernel, DataRace, 32, np.zeros(32), check="full").thread == 1
    assert found(kernel, OutOfBounds, 32, np.zeros(0), check="full").thread == 0


def test_vectors_in_shared_memory_are_followed():
    def kernel(y, apart):
        t, vectors = cuda.threadIdx.x, cuda.shared.array(0, float32)
        v = float32(t)
        store_part(vectors, int64(t * apart), (v, v, v, v))  # here
        cuda.syncthreads()
        y[t] = load_part(vectors, int64(t * apart))[3]

    def unwritten(y):
        vectors = cuda.shared.array(16, float32)
        if cuda.threadIdx.x == 0:
            one = float32(1.0)
            store_part(vectors, int64(4), (one, one, one, one))
            y[0] = load_part(vectors, int64(5))[0]  # here

    y = np.zeros(32, np.float32)
    EmulatedKernel(kernel, check="full").launch(1, 32, (y, 4), dynamic_shared_bytes=512)
    assert (y == np.arange(32)).all()
    assert found(kernel, DataRace, 32, y, 2, check="full", dynamic_shared_bytes=512).thread == 1
    for check in ("fast", "full"):
        assert found(kernel, OutOfBounds, 32, y, 4, check=check, dynamic_shared_bytes=508).thread == 31
    assert found(kernel, OutOfBounds, 32, y, -4, dynamic_shared_bytes=512).thread == 1
    assert found(unwritten, UninitializedRead, 32, y, check="full").thread == 0


# --- clusters --------------------------------------------------------------------------------------------------------


def exchange(y, sent, at_home):
    """Each block of four sends its number to all; the sum of what came in goes to y."""
    t, rank = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x) & 3
    mbarriers, numbers = cuda.shared.array(1, types.uint64), cuda.shared.array(4, int32)
    if t == 0:
        clusters.init_mbarrier(mbarriers, int64(0))
    clusters.cluster_arrive()
    if not at_home or rank > 0:
        clusters.cluster_wait()
    if t == 32:
        clusters.arrive_and_expect(mbarriers, int64(0), int32(4))
    if t < sent:
        clusters.send_to_block(numbers, int64(rank), int32(cuda.blockIdx.x), t, mbarriers, int64(0))
    clusters.wait_for_phase(mbarriers, int64(0), int32(0))  # here
    y[cuda.blockIdx.x * 64 + t] = numbers[0] + numbers[1] + numbers[2] + numbers[3]


def test_the_kernels_and_the_emulator_agree_where_a_cluster_s_memories_lie():
    assert clusters.BLOCK_SPAN == environment.BLOCK_SPAN
    assert clusters.MOST_BLOCKS == environment.MOST_BLOCKS


def test_blocks_of_a_cluster_send_each_other_words():
    for schedule_seed in (None, 1, 2, 3):
        y = np.zeros(8 * 64, np.int32)
        EmulatedKernel(exchange).launch(8, 64, (y, 4, False), cluster=4, schedule_seed=schedule_seed)
        assert (y[:256] == 0 + 1 + 2 + 3).all()
        assert (y[256:] == 4 + 5 + 6 + 7).all()


def test_words_that_never_come_are_waited_for_in_vain():
    error = found(exchange, NeverTrue, 64, np.zeros(4 * 64, np.int32), 3, False, grid=4, cluster=4)
    assert (error.block, error.thread) == ((3, 0, 0), 0)
    assert "no thread is left" in str(error)


def test_what_is_sent_to_a_block_that_the_cluster_has_not_or_past_its_shared_memory():
    def stray(y, rank, place):
        t, mbarriers, numbers = int32(cuda.threadIdx.x), cuda.shared.array(1, types.uint64), cuda.shared.array(4, int32)
        clusters.cluster_wait()
        if t == 33:
            clusters.send_to_block(numbers, int64(place), t, int32(rank), mbarriers, int64(0))  # here

    for rank, place, said in ((2, 0, "a block outside the cluster"), (-1, 0, "a block"), (1, 4, "outside shared memory")):
        error = found(stray, OutOfBounds, 64, np.zeros(1), rank, place, grid=2, cluster=2)
        assert said in error.reason
        assert error.thread == 33
    EmulatedKernel(stray).launch(2, 64, (np.zeros(1), 1, 3), cluster=2)


def test_a_block_that_does_not_wait_for_its_cluster():
    with pytest.raises(EmulatorError) as caught:
        EmulatedKernel(exchange).launch(4, 64, (np.zeros(4 * 64, np.int32), 4, True), cluster=4)
    assert type(caught.value) in (DivergentBarrier, NeverTrue)


@pytest.mark.parametrize(
    ("grid", "block", "options"),
    [
        (4, 64, {"cluster": 3}),
        (6, 64, {"cluster": 4}),
        (4, 48, {"cluster": 4}),
        (4, (8, 8), {"cluster": 4}),
        (4, 64, {"cluster": 0}),
    ],
)
def test_clusters_that_are_refused(grid, block, options):
    with pytest.raises(ValueError, match="cluster"):
        EmulatedKernel(exchange).launch(grid, block, (np.zeros(4 * 64, np.int32), 4, False), **options)


def test_clusters_are_refused_in_the_full_check():
    with pytest.raises(ValueError, match="in the fast check"):
        EmulatedKernel(exchange, check="full").launch(4, 64, (np.zeros(4 * 64, np.int32), 4, False), cluster=4)


# --- forms that are refused ------------------------------------------------------------------------------------------


@cuda.jit(device=True)
def early(value):
    if value > 0:
        return value
    cuda.syncthreads()
    return 0


@cuda.jit(device=True)
def doubled(value):
    return value * 2


def in_a_comprehension(x):
    y = [cuda.shfl_sync(ALL, k, 0) for k in range(3)]  # here
    x[0] = y[0]


def shape_at_run_time(x):
    n = x.shape[0]
    s = cuda.shared.array(n, float32)  # here
    s[0] = 1


def returns_a_value(x):
    return x  # here


def an_unknown_operation(x):
    x[0] = cuda.libdevice.y0(x[0])  # here


def a_function_as_a_value(x):
    choices = (doubled, doubled)  # here
    x[0] = choices[0](x[0])


def an_inner_function_of_two_meanings(x):
    function = doubled  # here
    if x[0] > 0:
        function = early
    x[0] = function(x[0])


def an_inner_function_with_any_names(x):
    def inner(**values):  # here
        return values["a"]

    x[0] = inner(a=x[0])


def a_kernel_with_any_arguments(*x):  # here
    x[0][0] = 1


def an_assignment_to_any_arguments(x):
    def inner(*values):
        values = values[1:]  # here
        return values[0]

    x[0] = inner(x[0], x[0])


def a_tuple_spread_in_a_call(x):
    pair = x[0], x[0]
    x[0] = max(doubled(*pair), 1)  # here


def an_array_of_vectors(x):
    s = cuda.shared.array(4, cuda.float32x4)  # here
    x[0] = s[0].x


@pytest.mark.parametrize(
    "kernel",
    [
        in_a_comprehension,
        shape_at_run_time,
        returns_a_value,
        an_unknown_operation,
        a_function_as_a_value,
        an_inner_function_of_two_meanings,
        an_inner_function_with_any_names,
        a_kernel_with_any_arguments,
        an_assignment_to_any_arguments,
        a_tuple_spread_in_a_call,
        an_array_of_vectors,
    ],
)
def test_a_form_that_cannot_be_rewritten_is_refused_with_its_line(kernel):
    error = found(kernel, UnsupportedKernel, 32, np.zeros(1))
    assert error.block is None


def test_what_numba_refuses_names_the_kernel():
    def kernel(x):
        x[0] = "text"

    found(kernel, CompileError, 32, np.zeros(2))


def test_wrong_launches_are_refused():
    def kernel(x):
        pass

    with pytest.raises(ValueError, match="1 to 1024 threads"):
        EmulatedKernel(kernel).launch(1, 1025, (1,))
    with pytest.raises(TypeError, match="takes 1 arguments, 2 given"):
        EmulatedKernel(kernel).launch(1, 32, (1, 2))
    with pytest.raises(ValueError, match="check is"):
        EmulatedKernel(kernel, check="slow")


def test_shared_memory_that_an_intrinsic_wrote_is_written():
    def kernel(y, store):
        t = cuda.threadIdx.x
        s = cuda.shared.array(64, types.float64)
        if store:
            alias = s
            store_one(alias, t)
        cuda.syncthreads()
        y[t] = s[t]  # here

    EmulatedKernel(kernel, check="full").launch(1, 64, (np.zeros(64), True))
    found(kernel, UninitializedRead, 64, np.zeros(64), False, check="full")


def test_lanes_that_end_before_others_name_them_are_no_excuse_for_two_masks():
    def kernel(x):
        t = cuda.threadIdx.x
        x[t] = cuda.ballot_sync(0xFFFFFFFF if t < 8 else 0xFFFFFF00, t)  # here

    emulated, line = EmulatedKernel(kernel, check="full"), kernel.__code__.co_firstlineno + 2
    for seed in range(8):  # in some of these the others have ended when the first eight come
        with pytest.raises((DivergentCollective, MaskError)) as caught:
            emulated.launch(1, 32, (np.zeros(32, np.int64),), schedule_seed=seed)
        assert caught.value.line == line


def test_lanes_that_ended_with_the_same_mask_are_no_fault():
    def kernel(x):
        t = cuda.threadIdx.x
        for _ in range(1 if t < 8 else 2):
            x[t] = cuda.ballot_sync(0xFFFFFFFF, True)

    x = np.zeros(32, np.int64)
    for seed in range(8):
        EmulatedKernel(kernel, check="full").launch(1, 32, (x,), schedule_seed=seed)
        assert (x & 0xFFFFFFFF).tolist() == [0xFFFFFFFF] * 8 + [0xFFFFFF00] * 24


def test_the_line_of_a_fault_is_found_again_from_the_same_memory():
    def kernel(x):
        i = 0
        while x[8] < 1:  # a second run on what the first one left would not come here
            x[8] = 1
            x[i + 9] = 1  # here

    x = np.zeros(9)
    found(kernel, OutOfBounds, 1, x)
    assert x[8] == 1


def test_arrays_too_large_to_copy_cost_the_line_of_a_fault_and_nothing_else(monkeypatch):
    def kernel(x):
        x[cuda.threadIdx.x + 1] = 1

    x = np.zeros(4)
    monkeypatch.setattr("numba_kernels.emulator.launch.MOST_REPEATED", x.nbytes - 1)
    with pytest.raises(OutOfBounds, match="thread 3") as caught:
        EmulatedKernel(kernel, check="fast").launch(1, 4, (x,))
    assert not caught.value.line
    monkeypatch.setattr("numba_kernels.emulator.launch.MOST_REPEATED", x.nbytes)
    with pytest.raises(OutOfBounds) as caught:
        EmulatedKernel(kernel, check="fast").launch(1, 4, (x,))
    assert caught.value.line


def test_what_the_emulator_cannot_compile_is_refused_by_name(monkeypatch):
    def kernel(x):
        x[0] = 1

    def unknown(*args):
        raise NotImplementedError("float8")

    monkeypatch.setattr("numba_kernels.emulator.compiled.Compiled.run", unknown)
    assert "the emulator does not support it: float8" in found(kernel, CompileError, 1, np.ones(1)).reason

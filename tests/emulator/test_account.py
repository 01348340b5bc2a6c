"""One account of memory: a race or an unwritten element is found, and a right kernel is not accused, whatever the syntax."""

import errno
import mmap

import numpy as np
import pytest
from numba import cuda, float32, float64, int8, uint8

from numba_kernels.emulator import CheckLimit, DataRace, EmulatedKernel, UninitializedRead

RECORD = np.dtype([("flag", np.int8), ("other", np.int8), ("n", np.int32)], align=True)


def floats(*shape):
    return np.zeros(shape, np.float32)


def records(count):
    return np.zeros(count, RECORD)


# --- wrong: each in one block of 32 threads --------------------------------------------------------------------------


def three_dimensions(a):
    i = cuda.grid(1)
    a[i, 0, 0] = a[(i + 1) % 32, 0, 0]


def four_dimensions(a):
    i = cuda.grid(1)
    a[i, 0, 0, 0] = a[i ^ 1, 0, 0, 0] + 1


def a_loop_over_shared(out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = t
    acc = float32(0)
    for v in s:
        acc += v
    out[t] = acc


def an_index_of_one_tuple(a):
    i = cuda.grid(1)
    a[(0,)] = i


def flat(a):
    i = cuda.grid(1)
    a.flat[0] = i


def an_array_in_a_tuple(pair):
    pair[0][0] = pair[1][cuda.grid(1)]


def slices_of_global_memory(a):
    i = cuda.grid(1)
    a[i : i + 2] = i


def a_row(a):
    a[0][cuda.grid(1) // 2] = cuda.grid(1)


def a_field(r):
    r[0]["n"] += 1


def an_attribute(r):
    r[0].n = cuda.grid(1)


def a_field_s_array(r):
    r["n"][cuda.grid(1) // 2] = cuda.grid(1)


def a_record_as_a_whole(r):
    i = cuda.grid(1)
    r[0] = r[i]


def a_view_of_bytes(a):
    b = a.view(int8)
    b[cuda.grid(1) // 2] = cuda.grid(1)


def a_column(a):
    c = a[:, 0]
    c[cuda.grid(1) // 4] = cuda.grid(1)


def shared_of_three_dimensions(out):
    s = cuda.shared.array((2, 4, 4), float32)
    t = cuda.threadIdx.x
    s[t // 16, t // 4 % 4, t % 4] = t
    out[t] = s[1 - t // 16, t // 4 % 4, t % 4]


def a_slice_of_what_nobody_wrote(out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    out[t] = s[t : t + 1][0]


def a_copy_of_slices(out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if t < 8:
        s[t * 2 : t * 2 + 2] = out[t * 2 : t * 2 + 2]
    cuda.syncthreads()
    out[t] = s[t]


def complex_numbers(a):
    a[0] = complex(cuda.grid(1), 0)


def max_of_a_slice(out):
    s = cuda.shared.array(32, float32)
    s[cuda.threadIdx.x] = cuda.threadIdx.x
    out[cuda.threadIdx.x] = max(s[0], s[31])


WRONG = [
    (three_dimensions, (floats(32, 1, 1),)),
    (four_dimensions, (floats(32, 1, 1, 1),)),
    (a_loop_over_shared, (floats(32),)),
    (an_index_of_one_tuple, (floats(32),)),
    (flat, (floats(32),)),
    (an_array_in_a_tuple, ((floats(1), np.arange(32, dtype=np.float32)),)),
    (slices_of_global_memory, (floats(34),)),
    (a_row, (floats(4, 32),)),
    (a_field, (records(1),)),
    (an_attribute, (records(1),)),
    (a_field_s_array, (records(32),)),
    (a_record_as_a_whole, (records(32),)),
    (a_view_of_bytes, (floats(32),)),
    (a_column, (floats(32, 4),)),
    (shared_of_three_dimensions, (floats(32),)),
    (a_slice_of_what_nobody_wrote, (floats(32),)),
    (a_copy_of_slices, (floats(32),)),
    (complex_numbers, (np.zeros(1, np.complex64),)),
    (max_of_a_slice, (floats(32),)),
]
QUICK = [
    a_loop_over_shared,
    flat,
    an_array_in_a_tuple,
    slices_of_global_memory,
    a_row,
    a_field,
]
QUICK += [a_view_of_bytes, a_slice_of_what_nobody_wrote]  # the others say the same of one more way to write it


def fresh(args):
    return tuple(fresh(a) if isinstance(a, tuple) else a.copy() for a in args)


@pytest.mark.parametrize("seed", [None, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kernel", "args"),
    [case if case[0] in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in WRONG],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_what_is_wrong_is_found_whatever_its_syntax(kernel, args, seed):
    with pytest.raises((DataRace, UninitializedRead)) as caught:
        EmulatedKernel(kernel, check="full").launch(1, 32, fresh(args), schedule_seed=seed)
    assert caught.value.line > kernel.__code__.co_firstlineno


# --- right -----------------------------------------------------------------------------------------------------------


def filled_by_one(out):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if t == 0:
        s[:] = float32(1)
    cuda.syncthreads()
    out[t] = s[t]


def filled_by_rows(out):
    s = cuda.shared.array((4, 8), float32)
    t = cuda.threadIdx.x
    if t < 4:
        s[t, :] = float32(t)
    cuda.syncthreads()
    out[t] = s[t // 8, t % 8]


def a_plane_of_three_dimensions(out):
    s = cuda.shared.array((2, 2, 8), float32)
    t = cuda.threadIdx.x
    s[t // 16, t // 8 % 2, t % 8] = t
    cuda.syncthreads()
    v = s[1]
    out[t] = v[1, t % 8]


def fields_of_one_record(r):
    i = cuda.grid(1)
    if i == 0:
        r[0]["flag"] = 1
    elif i == 1:
        r[0]["other"] = 2
    elif i == 2:
        r[0]["n"] = 3


def bytes_of_one_word(a):
    b = a.view(uint8)
    b[cuda.grid(1)] = cuda.grid(1)


def bytes_of_shared_words(out):
    words = cuda.shared.array(0, float32)
    bytes_ = cuda.shared.array(0, uint8)
    t = cuda.threadIdx.x
    bytes_[t] = 0
    cuda.syncthreads()
    out[t] = words[t // 4]


def each_its_own_slice(a):
    i = cuda.grid(1)
    a[2 * i : 2 * i + 2] = i
    for v in a[2 * i : 2 * i + 2]:
        a[2 * i] += v


def halves_of_complex(a):
    i = cuda.grid(1)
    a.real[i] = a.imag[i] + i


def local_arrays(out):
    own = cuda.local.array(4, float64)
    own[:] = cuda.grid(1)
    out[cuda.grid(1)] = own[3]


RIGHT = [
    (filled_by_one, (floats(32),), np.ones(32)),
    (filled_by_rows, (floats(32),), np.arange(32) // 8),
    (a_plane_of_three_dimensions, (floats(32),), 24 + np.arange(32) % 8),
    (fields_of_one_record, (records(1),), np.array([(1, 2, 3)], RECORD)),
    (bytes_of_one_word, (np.zeros(8, np.uint32),), np.arange(32, dtype=np.uint8).view(np.uint32)),
    (each_its_own_slice, (floats(64),), np.repeat(np.arange(32), 2) * np.tile([3, 1], 32)),
    (local_arrays, (floats(32),), np.arange(32)),
]


@pytest.mark.parametrize("seed", [None, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kernel", "args", "want"), RIGHT, ids=lambda v: getattr(v, "__name__", ""))
def test_what_is_right_is_not_accused(kernel, args, want, seed):
    args = fresh(args)
    assert EmulatedKernel(kernel, check="full").launch(1, 32, args, schedule_seed=seed) == []
    np.testing.assert_array_equal(args[0], want)


def test_bytes_that_make_up_shared_words():
    out = floats(32)
    EmulatedKernel(bytes_of_shared_words, check="full").launch(1, 32, (out,), dynamic_shared_bytes=32)
    assert (out == 0).all()


# --- the same value --------------------------------------------------------------------------------------------------


def raises_a_flag(x, flag):
    if x[cuda.grid(1)] > 0:
        flag[0] = 1


@pytest.mark.parametrize("grid", [1, 2])
def test_two_threads_that_write_the_same_value_are_a_note(grid):
    x, flag = np.ones(64 // grid * grid, np.float32), np.zeros(1, np.int32)
    (note,) = EmulatedKernel(raises_a_flag, check="full").launch(grid, 64 // grid, (x, flag))
    line = raises_a_flag.__code__.co_firstlineno + 2
    both = f"thread 0 of block 0 in line {line} and thread 1 of block 0 in line {line}"
    assert note == f"raises_a_flag: {both} write the same value to one place, in no order"
    assert flag[0] == 1
    with pytest.raises(DataRace):
        EmulatedKernel(raises_a_flag, check="full").launch(grid, 64 // grid, (x, flag), same_value="error")
    with pytest.raises(ValueError, match="same_value is 'note' or 'error', not 'maybe'"):
        EmulatedKernel(raises_a_flag).launch(1, 1, (x, flag), same_value="maybe")


def test_another_value_among_equal_ones_is_a_race():
    def kernel(out):
        out[0] = 1 if cuda.grid(1) != 20 else 2

    with pytest.raises(DataRace, match="thread 20: writes an element that thread 19 wrote"):
        EmulatedKernel(kernel, check="full").launch(1, 32, (np.zeros(1, np.int32),))


def test_arrays_whose_account_finds_no_room(monkeypatch):
    def kernel(x):
        x[0] = 1

    def none_left(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", none_left)
    with pytest.raises(CheckLimit, match="needs more memory than the system gives"):
        EmulatedKernel(kernel, check="full").launch(1, 1, (floats(1 << 20),))

"""Where CUDA and Python on a CPU disagree, CUDA's meaning is what runs: roundings, conversions, signatures, launch limits."""

import math
import textwrap

import numpy as np
import pytest
from numba import cuda, float32, float64, int8, int16, int32, int64, types, uint8, uint32, uint64

from numba_kernels.emulator import CompileError, DivergentCollective, EmulatedKernel, emulate


def run(kernel, block, *args, grid=1, check="fast", **options):
    EmulatedKernel(kernel, check=check).launch(grid, block, args, **options)


def test_floor_ceil_and_trunc_are_floats():
    def kernel(x, out):
        i = cuda.grid(1)
        out[i, 0] = math.floor(x[i])
        out[i, 1] = math.ceil(x[i])
        out[i, 2] = math.trunc(x[i])
        out[i, 3] = math.copysign(float32(1), math.ceil(x[i]))
        out[i, 4] = math.ceil(x[i]) * float32(1e-10)
        out[i, 5] = math.floor(i) / 2

    x = np.array([1e20, -1e20, np.inf, -np.inf, np.nan, -0.5, 2.5, 3e19], np.float32)
    out = np.zeros((8, 6), np.float32)
    run(kernel, 8, x, out)
    with np.errstate(all="ignore"):
        want = [
            np.floor(x),
            np.ceil(x),
            np.trunc(x),
            np.copysign(1, np.ceil(x)),
            np.ceil(x) * np.float32(1e-10),
            np.arange(8) / 2,
        ]
    np.testing.assert_array_equal(out, np.stack(want, 1).astype(np.float32))


VALUES = [1e20, -1e20, np.nan, np.inf, -np.inf, 2.7, -2.7, 3e9, 70000.0, -300.0]
BOUNDS = {
    int8: (-(2**15), 2**15 - 1, 0), int16: (-(2**15), 2**15 - 1, 0), int32: (-(2**31), 2**31 - 1, 0),
    int64: (-(2**63), 2**63 - 1, -(2**63)), uint8: (0, 2**16 - 1, 0), uint32: (0, 2**32 - 1, 0), uint64: (0, 2**64 - 1, 2**63),
}  # fmt: skip


QUICK = [(int32, np.float32), (uint32, np.float64), (int64, np.float64), (uint64, np.float32)]


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        pytest.param(kind, source, marks=() if (kind, source) in QUICK else pytest.mark.slow)
        for kind in (int8, int32, int64, uint8, uint32, uint64)
        for source in (np.float32, np.float64)
    ],
    ids=str,
)
def test_a_float_beyond_an_integer_s_range_saturates(kind, source):
    """As ``cvt.rzi`` does: NaN gives 0, and the sign bit alone where 64 bits (or float64 to 32) are involved."""

    def kernel(x, out):
        out[cuda.grid(1)] = kind(x[cuda.grid(1)])

    out = np.zeros(len(VALUES), str(kind))
    run(kernel, len(VALUES), np.array(VALUES, source), out)
    low, high, nan = BOUNDS[kind]
    if source is np.float64 and kind in (int32, uint32):
        nan = -(2**31) if kind is int32 else 2**31
    want = [nan if math.isnan(v) else int(min(max(v, low), high)) for v in np.array(VALUES, source).tolist()]
    bits = out.dtype.itemsize * 8
    np.testing.assert_array_equal(out.view(f"u{bits // 8}"), np.array([w % 2**bits for w in want], f"u{bits // 8}"))


def test_a_slice_filled_with_floats_saturates_too():
    def kernel(x, out):
        out[:] = x[0]

    out = np.zeros(3, np.int32)
    run(kernel, 1, np.array([1e20]), out)
    assert out.tolist() == [2**31 - 1] * 3


def test_scalars_have_the_types_of_the_signature():
    def kernel(out, wide, narrow, small):
        out[0], out[1], out[2] = wide, narrow, small * 3

    out = np.zeros(3)
    EmulatedKernel(kernel, signature="void(float64[:], int64, int32, float32)").launch(1, 1, (out, 2**32 + 5, 2**32 + 5, 0.1))
    np.testing.assert_array_equal(out, [2**32 + 5, 5, float(np.float32(0.1)) * 3])
    EmulatedKernel(kernel, signature=types.void(float64[:], uint32, int32, float32)).launch(1, 1, (out, -1, 2**31, 1))
    np.testing.assert_array_equal(out, [2**32 - 1, -(2**31), 3])


def test_a_signature_refuses_arrays_of_another_dtype():
    def kernel(out):
        out[0] = 1

    with pytest.raises(TypeError, match=r"kernel: No matching definition .*\(.*float64.*\); it has .*float32"):
        EmulatedKernel(kernel, signature="void(float32[:])").launch(1, 1, (np.zeros(1),))


def met_in_both_branches(out):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    if t < 16:
        s[t] = t
        cuda.syncwarp()
        out[t] = s[t + 16]
    else:
        s[t] = 100 + t
        cuda.syncwarp()
        out[t] = s[t - 16]


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("check", ["fast", "full"])
def test_syncwarp_may_be_met_in_both_branches(check, seed):
    out = np.zeros(32, np.int32)
    run(met_in_both_branches, 32, out, check=check, schedule_seed=seed)
    np.testing.assert_array_equal(out, [*range(116, 132), *range(16)])


def test_syncwarps_with_different_masks_do_not_meet():
    def kernel(out):
        if cuda.threadIdx.x < 16:
            cuda.syncwarp(0xFFFFFFFF)
        else:
            cuda.syncwarp(0xFFFF0000)
        cuda.syncthreads()

    with pytest.raises(DivergentCollective):
        run(kernel, 32, np.zeros(1))


def uses_much_shared_memory(x):
    s = cuda.shared.array((128, 128), float64)
    s[0, cuda.threadIdx.x] = 1
    x[0] = s[0, 0]


def does_nothing(x):
    x[0] = 1


@pytest.mark.parametrize(
    ("grid", "block", "shared", "said"),
    [
        ((1, 70000), 1, 0, "grid y is at most 65535, not 70000"),
        ((1, 1, 65536), 1, 0, "grid z is at most 65535, not 65536"),
        ((2**31, 1), 1, 0, "grid x is at most 2147483647, not 2147483648"),
        (1, (1, 1, 128), 0, "block z is at most 64, not 128"),
        (1, 1, 1 << 20, "at most 232448 bytes a block, not 1048576"),
        (1, 1, -1, "at most 232448 bytes a block, not -1"),
    ],
)
def test_a_launch_that_no_gpu_takes_is_refused(grid, block, shared, said):
    with pytest.raises(ValueError, match=said):
        run(does_nothing, block, np.zeros(1), grid=grid, dynamic_shared_bytes=shared)


def test_128_kib_of_static_shared_memory_run():
    x = np.zeros(1)
    run(uses_much_shared_memory, 1, x)
    assert x[0] == 1


# --- what is kept is never stale -------------------------------------------------------------------------------------

SCALE = 2.0
TPB = 4


@cuda.jit(device=True)
def lifted(value):
    return value + 1


def scales(x, out):
    i = cuda.grid(1)
    out[i] = lifted(x[i]) * SCALE


def reverses(x, out):
    s = cuda.shared.array(TPB, float64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[TPB - 1 - t]


def test_a_global_s_value_is_that_of_the_compilation(monkeypatch):
    x, out = np.arange(4.0), np.zeros(4)
    old = EmulatedKernel(scales)
    old.launch(1, 4, (x, out))
    np.testing.assert_array_equal(out, (x + 1) * 2)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    run(scales, 4, x, out)
    np.testing.assert_array_equal(out, (x + 1) * 3)
    old.launch(1, 4, (x, out))  # as a dispatcher that has compiled
    np.testing.assert_array_equal(out, (x + 1) * 2)


def test_a_helper_that_is_defined_anew_is_the_one_that_runs(monkeypatch):
    x, out = np.arange(4.0), np.zeros(4)
    run(scales, 4, x, out)

    @cuda.jit(device=True)
    def raised(value):
        return value + 10

    monkeypatch.setitem(globals(), "lifted", raised)
    run(scales, 4, x, out)
    np.testing.assert_array_equal(out, (x + 10) * 2)


def test_a_shared_array_s_size_follows_its_global(monkeypatch):
    for size in (4, 8):
        monkeypatch.setitem(globals(), "TPB", size)
        x, out = np.arange(float(size)), np.zeros(size)
        run(reverses, size, x, out, check="full")
        np.testing.assert_array_equal(out, x[::-1])


def test_a_helper_s_own_globals_and_a_module_s_attributes_count(tmp_path, monkeypatch):
    (tmp_path / "settings_of_a_kernel.py").write_text("FACTOR = 2\n")
    (tmp_path / "kernel_with_settings.py").write_text(
        textwrap.dedent("""
            from numba import cuda
            import settings_of_a_kernel as settings
            BIAS = 1
            @cuda.jit(device=True)
            def helper(v):
                return v * settings.FACTOR + BIAS
            def kernel(x):
                x[0] = helper(x[0])
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    import kernel_with_settings
    import settings_of_a_kernel

    found = []
    for factor, bias in ((2, 1), (3, 1), (3, 5)):
        settings_of_a_kernel.FACTOR, kernel_with_settings.BIAS = factor, bias
        x = np.ones(1)
        run(kernel_with_settings.kernel, 1, x)
        found.append(x[0])
    assert found == [3, 4, 8]


# --- what numba-cuda refuses -----------------------------------------------------------------------------------------


def counts_a_bool(x):
    x[0] = cuda.syncthreads_count(x[0] > 0)


def takes_numpys_root(x):
    x[0] = np.sqrt(x[0])


def adds_text(x):
    x[0] = x[0] + "a"


@pytest.mark.parametrize("kernel", [counts_a_bool, takes_numpys_root, adds_text])
def test_what_numba_cuda_refuses_is_refused(kernel):
    with pytest.raises(CompileError, match=r"test_semantics.py:\d+: numba-cuda cannot compile it: ") as caught:
        run(kernel, 32, np.zeros(1))
    assert caught.value.kernel == kernel.__name__


@cuda.jit(device=True)
def scaled_square(factor, value):
    return factor * value * value


def test_a_device_function_called_with_two_constants_is_two_calls():
    def kernel(x, out):
        out[0] = scaled_square(2, x[0] + 1) + scaled_square(3, x[0] + 1)

    for check in ("fast", "full"):
        out = np.zeros(1)
        run(kernel, 1, np.ones(1), out, check=check)
        assert out[0] == 2 * 4 + 3 * 4


def test_float16_is_rounded_at_each_step_and_mixes_as_numba_cuda_types_it():
    def kernel(a, b, out):
        i = cuda.grid(1)
        out[i, 0] = a[i] * b[i] + a[i]
        out[i, 1] = a[i] / b[i]
        out[i, 2] = a[i] + float32(b[i])
        out[i, 3] = math.sqrt(abs(a[i]))
        out[i, 4] = cuda.fp16.hfma(a[i], b[i], a[i])
        out[i, 5] = -a[i] if a[i] < b[i] else a[i] + 1

    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=256).astype(np.float16) for _ in "ab")
    out = np.zeros((256, 6))
    run(kernel, 256, a, b, out)
    wide = a.astype(np.float64)
    want = [
        a * b + a,
        a / b,
        a.astype(np.float32) + b,
        np.sqrt(abs(a)),
        (wide * b + wide).astype(np.float16),
        np.where(a < b, -a, wide + 1),
    ]
    np.testing.assert_array_equal(out, np.stack([w.astype(np.float64) for w in want], 1))


def test_float64_becomes_float16_with_one_rounding():
    def kernel(x, out):
        out[cuda.grid(1)] = x[cuda.grid(1)]

    near = 1 + (2 * np.arange(512) + 1) * 2.0**-11  # halfway between two float16s, and a float64 step off it on both sides
    x = np.concatenate([near, np.nextafter(near, 2), np.nextafter(near, 0), [65519.99, 65520, 2.0**-25, 1e-8, -np.inf, 0, -0.0]])
    out = np.zeros(x.size, np.float16)
    run(kernel, 1, x, out, grid=x.size)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out.view(np.uint16), x.astype(np.float16).view(np.uint16))


@cuda.jit(device=True)
def line_through(x, slope, at):
    return slope * x + at


def test_a_product_and_a_sum_that_a_gpu_may_round_once_are_named():
    @cuda.jit
    def kernel(x, out):
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x  # integers
        square = x[i] * x[i]
        out[i] = square + 1
        out[i] -= line_through(x[i], 2, 3)
        out[i] += float32(x[i] * x[i] / 2)  # rounded between

    first = kernel.py_func.__code__.co_firstlineno
    arrays = np.ones(8, np.float32), np.ones(8, np.float32)
    (note,) = emulate(kernel, 1, 8, arrays)
    inner = line_through.py_func.__code__.co_firstlineno + 2
    assert note.startswith(f"kernel: in lines {inner}, {first + 4} a product and a sum")
    assert emulate(cuda.jit(fma=False)(kernel.py_func), 1, 8, arrays) == []


def test_a_kernel_with_device_functions_is_held_against_numba_cuda_too():
    def kernel(x):
        x[0] = np.sqrt(line_through(x[0], 1, 2)) + undefined  # noqa: F821

    with pytest.raises(CompileError, match="numba-cuda cannot compile it"):
        run(kernel, 1, np.ones(1))


def test_libdevice_s_functions_are_in_the_types_that_numba_cuda_gives_them():
    def kernel(x, out):
        i = cuda.grid(1)
        out[i, 0] = cuda.libdevice.sinf(x[i])
        out[i, 1] = cuda.libdevice.sin(x[i])
        out[i, 2] = cuda.libdevice.fast_expf(x[i])
        out[i, 3] = cuda.libdevice.roundf(x[i] + float32(0.5))
        out[i, 4] = cuda.libdevice.clz(i) + cuda.libdevice.ffs(i)

    x = np.linspace(-3, 3, 32).astype(np.float32)
    out = np.zeros((32, 5))
    run(kernel, 32, x, out)
    half = x + np.float32(0.5)
    rounded = np.copysign(np.floor(abs(half).astype(np.float64) + 0.5), half)
    bits = [32 - int(i).bit_length() + (i & -i).bit_length() for i in range(32)]
    want = [np.sin(x).astype(np.float64), np.sin(x.astype(np.float64)), np.exp(x).astype(np.float64), rounded, bits]
    np.testing.assert_allclose(out, np.stack(want, 1), rtol=2e-7, atol=1e-7)
    assert (out[:, 0] == out[:, 0].astype(np.float32)).all()
    assert (out[:, 1] != out[:, 1].astype(np.float32)).any()

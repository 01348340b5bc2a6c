"""Where the rows lie: strides, alignment, axes, zero rows, other libraries' arrays. On the CPU emulator."""

import warnings
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch

import numba_kernels

from .rows import DTYPES, GATED, NORMS, bits, call, inputs_of, random, slow, to_torch

BF16 = ml_dtypes.bfloat16


def misaligned(array):
    """A copy that starts one element into its buffer."""
    buffer = np.empty(array.size + 1, array.dtype)
    view = buffer[1:].reshape(array.shape)
    view[...] = array
    return view


@pytest.mark.parametrize("which", ["input", "residual", "weight"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_misaligned_argument_keeps_the_bits(which, dtype):
    inputs = inputs_of("fused_add_rmsnorm", 1, 64, dtype)
    want = call("fused_add_rmsnorm", inputs)
    inputs[which] = misaligned(inputs[which])
    x, residual = inputs["input"], inputs["residual"]
    numba_kernels.fused_add_rmsnorm(x, residual, inputs["weight"])
    assert np.array_equal(bits(x), bits(want["output"]))
    assert np.array_equal(bits(residual), bits(want["residual"]))


def test_a_misaligned_out_keeps_the_bits():
    x, weight = random((2, 64), "bf16"), random((64,), "bf16", seed=1)
    want = numba_kernels.rmsnorm(x, weight)
    out = misaligned(np.zeros_like(want))
    assert numba_kernels.rmsnorm(x, weight, out=out) is out
    assert np.array_equal(bits(out), bits(want))


@pytest.mark.parametrize(("op", "width"), [("silu_and_mul", 64), *slow(("silu_and_mul", 63), *product(GATED[1:], (63, 64)))])
def test_a_misaligned_gated_row_keeps_the_bits(op, width):
    x = random((2, 2 * width), "bf16")
    want = getattr(numba_kernels, op)(x)
    assert np.array_equal(bits(getattr(numba_kernels, op)(misaligned(x))), bits(want))
    out = misaligned(np.zeros_like(want))
    assert getattr(numba_kernels, op)(x, out) is out
    assert np.array_equal(bits(out), bits(want))


def test_row_strides_are_honoured_and_the_gaps_untouched():
    wide = random((4, 100), "bf16")
    kept = wide.copy()
    residual = random((4, 64), "bf16", seed=1)
    want = call("fused_add_rmsnorm", {"input": wide[:, :64], "residual": residual, "weight": np.ones(64, BF16)})
    numba_kernels.fused_add_rmsnorm(wide[:, :64], residual, np.ones(64, BF16))
    assert np.array_equal(bits(wide[:, :64]), bits(want["output"]))
    assert np.array_equal(bits(wide[:, 64:]), bits(kept[:, 64:]))


@pytest.mark.parametrize("op", [*NORMS, *GATED])
def test_an_out_inside_wider_rows_is_filled_and_its_gaps_untouched(op):
    inputs = inputs_of(op, 3, 21, "bf16")
    want = call(op, inputs)["output"]
    wide = random((3, 33), "bf16", seed=5)
    kept = wide.copy()
    call(op, inputs, out=wide[:, 4:25])
    assert np.array_equal(bits(wide[:, 4:25]), bits(want))
    assert np.array_equal(bits(wide[:, :4]), bits(kept[:, :4]))
    assert np.array_equal(bits(wide[:, 25:]), bits(kept[:, 25:]))


def test_a_slice_of_a_wider_row_is_its_own_gate_and_up():
    wide = random((3, 50), "fp32")
    assert np.array_equal(numba_kernels.silu_and_mul(wide[:, :22]), numba_kernels.silu_and_mul(wide[:, :22].copy()))


@pytest.mark.parametrize("shape", [(64,), (1, 64), (2, 3, 64), (2, 1, 3, 64)])
def test_leading_axes_flatten(shape):
    x, weight = random(shape, "fp16"), random((64,), "fp16", seed=1)
    out = numba_kernels.rmsnorm(x, weight)
    assert out.shape == shape
    assert np.array_equal(bits(out.reshape(-1, 64)), bits(numba_kernels.rmsnorm(x.reshape(-1, 64), weight)))


def far_apart(array):
    """A copy of two rows, at element offsets that 32 bits can't hold; the memory between is never touched."""
    stride = 2**31 + 64
    buffer = np.empty(stride + array.shape[1], array.dtype)
    rows = np.lib.stride_tricks.as_strided(buffer, array.shape, (stride * array.itemsize, array.itemsize))
    rows[...] = array
    return rows


def test_rows_half_a_terabyte_of_offsets_apart_are_found():
    x, weight = far_apart(random((2, 64), "fp16")), random((64,), "fp16", seed=1)
    want = numba_kernels.rmsnorm(x.copy(), weight)
    numba_kernels.rmsnorm(x, weight, out=x)
    assert np.array_equal(bits(x.copy()), bits(want))


def test_a_gated_input_and_output_so_far_apart_are_found():
    x, out = far_apart(random((2, 128), "fp16")), far_apart(np.zeros((2, 64), np.float16))
    want = numba_kernels.silu_and_mul(x.copy())
    numba_kernels.silu_and_mul(x, out)
    assert np.array_equal(bits(out.copy()), bits(want))


def test_a_residual_so_far_apart_is_found():
    inputs = inputs_of("fused_add_rmsnorm", 2, 64, "fp16")
    want = call("fused_add_rmsnorm", inputs)
    residual = far_apart(inputs["residual"])
    numba_kernels.fused_add_rmsnorm(inputs["input"], residual, inputs["weight"])
    assert np.array_equal(bits(inputs["input"]), bits(want["output"]))
    assert np.array_equal(bits(residual.copy()), bits(want["residual"]))


def test_gates_and_ups_so_far_apart_are_found():
    x = random((2, 128), "bf16")
    assert np.array_equal(bits(numba_kernels.silu_and_mul(far_apart(x))), bits(numba_kernels.silu_and_mul(x)))


def test_a_gated_out_so_far_apart_is_found():
    x, out = random((2, 128), "bf16"), far_apart(np.zeros((2, 64), BF16))
    numba_kernels.silu_and_mul(x, out)
    assert np.array_equal(bits(out.copy()), bits(numba_kernels.silu_and_mul(x)))


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8)])
def test_zero_rows_return_with_their_shape(shape):
    x = np.empty(shape, np.float32)
    assert numba_kernels.rmsnorm(x, np.ones(8, np.float32)).shape == shape
    assert numba_kernels.silu_and_mul(x).shape == (*shape[:-1], 4)
    assert numba_kernels.fused_add_rmsnorm(x, x.copy(), np.ones(8, np.float32)) is None


def test_one_row_is_called_without_a_warning():
    """numba's own launch warns of a grid below the GPU's size."""
    x = random((1, 4096), "bf16")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numba_kernels.fused_add_rmsnorm(x, x.copy(), np.ones(4096, BF16))
        numba_kernels.silu_and_mul(x)


def test_out_may_be_the_input_of_rmsnorm():
    x, weight = random((2, 32), "bf16"), random((32,), "bf16", seed=1)
    want = numba_kernels.rmsnorm(x, weight)
    assert numba_kernels.rmsnorm(x, weight, out=x) is x
    assert np.array_equal(bits(x), bits(want))


def test_x_and_residual_may_interleave_in_one_buffer():
    both = random((4, 128), "bf16")
    x, residual = both[:, :64], both[:, 64:]
    want = call("fused_add_rmsnorm", {"input": x, "residual": residual, "weight": np.ones(64, BF16)})
    numba_kernels.fused_add_rmsnorm(x, residual, np.ones(64, BF16))
    assert np.array_equal(bits(x), bits(want["output"]))
    assert np.array_equal(bits(residual), bits(want["residual"]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_cpu_tensors_are_written_in_place(dtype):
    inputs = inputs_of("fused_add_rmsnorm", 2, 64, dtype)
    want = call("fused_add_rmsnorm", inputs)
    x, residual, weight = (to_torch(inputs[n]) for n in ("input", "residual", "weight"))
    numba_kernels.fused_add_rmsnorm(x, residual, torch.nn.Parameter(weight))
    assert torch.equal(x, to_torch(want["output"]))
    assert torch.equal(residual, to_torch(want["residual"]))


def test_a_torch_tensor_gives_a_torch_tensor_of_its_dtype():
    out = numba_kernels.gelu_and_mul(torch.randn(2, 3, 6, dtype=torch.bfloat16))
    assert isinstance(out, torch.Tensor)
    assert out.dtype == torch.bfloat16
    assert out.shape == (2, 3, 3)


class DLPackOnly:
    """An array that speaks nothing but DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_dlpack_arrays_are_written_in_place():
    x, residual, weight = torch.randn(2, 8), torch.randn(2, 8), torch.ones(8)
    want = (x + residual).numpy()
    numba_kernels.fused_add_rmsnorm(DLPackOnly(x), DLPackOnly(residual), DLPackOnly(weight))
    assert np.array_equal(residual.numpy(), want)


def test_a_row_keeps_its_bits_in_any_batch():
    x, weight = random((256, 111), "bf16"), random((111,), "bf16", seed=1)
    whole = numba_kernels.rmsnorm(x, weight)
    for rows in (1, 255, 256):
        assert np.array_equal(bits(numba_kernels.rmsnorm(x[:rows], weight)), bits(whole[:rows]))

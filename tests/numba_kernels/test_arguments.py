"""Bad input: an error that names the argument and says what is allowed, before anything is written."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import numba_kernels
from numba_kernels import fused_add_rmsnorm, rmsnorm, silu_and_mul
from numba_kernels.runtime import arguments, calls, host
from numba_kernels.runtime import arrays as arrays_module
from numba_kernels.runtime.arrays import CPU

from .rows import ADD_NORMS, DTYPES, NORMS, inputs_of

BF16 = ml_dtypes.bfloat16


def arrays(rows=2, width=8, dtype=np.float32):
    return np.ones((rows, width), dtype), np.ones((rows, width), dtype), np.ones(width, dtype)


def refused(error, words, function, *args, **options):
    """``function`` raises ``error`` with all of ``words`` in its message, and no NumPy argument has changed."""
    kept = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with pytest.raises(error) as caught:
        function(*args, **options)
    for word in words:
        assert word in str(caught.value)
    for before, after in zip(kept, args, strict=True):
        if isinstance(before, np.ndarray):
            assert np.array_equal(before, after, equal_nan=True)


def test_a_dtype_that_is_not_supported():
    x, r, w = arrays(dtype=np.float64)
    refused(TypeError, ["input", "float64", "float16"], fused_add_rmsnorm, x, r, w)


def test_something_that_is_no_array():
    _, r, w = arrays()
    refused(TypeError, ["input", "list", "array"], fused_add_rmsnorm, [[1.0] * 8], r, w)


def test_a_scalar_array():
    refused(ValueError, ["input", "scalar"], rmsnorm, np.array(1, np.float32), np.ones(1, np.float32))


def test_a_residual_of_another_dtype_is_refused_not_rounded():
    x, _, w = arrays(dtype=BF16)
    refused(TypeError, ["residual", "fp32", "bf16"], fused_add_rmsnorm, x, np.ones((2, 8), np.float32), w)


def test_a_residual_of_another_shape():
    x, _, w = arrays()
    refused(ValueError, ["residual", "(3, 8)", "(2, 8)"], fused_add_rmsnorm, x, np.ones((3, 8), np.float32), w)


@pytest.mark.parametrize(
    ("rows", "weight"), [("bf16", "fp16"), ("fp16", "bf16"), ("fp32", "fp16"), ("fp32", "bf16"), ("bf16", "f8"), ("bf16", "u2")]
)
@pytest.mark.parametrize("op", NORMS + ADD_NORMS)
def test_a_weight_is_of_the_rows_dtype_or_fp32(op, rows, weight):
    arrays = [array.astype(DTYPES[rows]) for array in inputs_of(op, 2, 8, "fp32").values()]
    arrays[-1] = np.ones(8, DTYPES.get(weight, weight))
    refused(TypeError, ["weight", "fp32" if weight in DTYPES else "float32"], getattr(numba_kernels, op), *arrays)


@pytest.mark.parametrize("shape", [(7,), (9,), (1, 8), (8, 1)])
def test_a_weight_of_the_wrong_shape(shape):
    x, r, _ = arrays()
    refused(ValueError, ["weight", "(8,)"], fused_add_rmsnorm, x, r, np.ones(shape, np.float32))


def test_a_weight_of_another_16_bit_dtype():
    x, r, _ = arrays(dtype=BF16)
    refused(TypeError, ["weight", "fp16", "bf16 or fp32"], fused_add_rmsnorm, x, r, np.ones(8, np.float16))


def test_a_weight_with_a_stride():
    x, r, _ = arrays()
    refused(ValueError, ["weight", "stride 2"], fused_add_rmsnorm, x, r, np.ones(16, np.float32)[::2])


def test_rows_that_are_not_contiguous():
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T
    refused(ValueError, ["input", "stride", "contiguous"], rmsnorm, x, np.ones(3, np.float32))


def test_no_argument_with_rows_may_have_an_inner_stride():
    (x, r, w), apart = arrays(), np.ones((2, 16), np.float32)[:, ::2]
    refused(ValueError, ["input", "stride 2"], fused_add_rmsnorm, apart, r, w)
    refused(ValueError, ["residual", "stride 2"], fused_add_rmsnorm, x, apart, w)
    refused(ValueError, ["out", "stride 2"], rmsnorm, x, w, 1e-6, apart)
    refused(ValueError, ["input", "stride 2"], silu_and_mul, apart)
    refused(ValueError, ["out", "stride 2"], silu_and_mul, np.ones((2, 16), np.float32), apart)


def test_leading_axes_that_would_need_a_copy_are_refused_not_copied():
    x = np.zeros((4, 3, 8), np.float32).transpose(1, 0, 2)
    refused(ValueError, ["input", "without a copy"], fused_add_rmsnorm, x, x.copy(), np.ones(8, np.float32))


@pytest.mark.parametrize("eps", [float("nan"), float("inf"), -1e-6, 1e300, 10**400])
def test_an_eps_that_is_no_finite_fp32_number_of_at_least_zero(eps):
    refused(ValueError, ["eps", repr(eps)], fused_add_rmsnorm, *arrays(), eps)


@pytest.mark.parametrize("eps", [None, "1e-6", True, 1e-6j])
def test_an_eps_that_is_no_number(eps):
    refused(TypeError, ["eps"], fused_add_rmsnorm, *arrays(), eps)


@pytest.mark.parametrize("contract", ["R2W0", "", None, "S0", "W0", np.array(["R0W0"])])
def test_a_contract_the_operator_does_not_have(contract):
    refused(ValueError, ["contract", "R0W0, R1W0, R0W1, R1W1"], fused_add_rmsnorm, *arrays(), contract=contract)


def test_enable_pdl_of_another_type():
    refused(TypeError, ["enable_pdl"], fused_add_rmsnorm, *arrays(), enable_pdl=1)


def test_x_as_its_own_residual():
    x, _, w = arrays()
    refused(ValueError, ["residual", "overlaps input"], fused_add_rmsnorm, x, x, w)


def test_x_and_residual_that_share_one_row():
    buffer = np.ones((3, 8), np.float32)
    refused(ValueError, ["residual", "overlaps input"], fused_add_rmsnorm, buffer[:2], buffer[1:], np.ones(8, np.float32))


def test_a_weight_inside_the_input():
    x, r, _ = arrays()
    refused(ValueError, ["input", "overlaps weight"], fused_add_rmsnorm, x, r, x[1])


def test_an_out_that_overlaps_a_part_of_the_input():
    buffer = np.ones((3, 8), np.float32)
    refused(ValueError, ["out", "overlaps input"], rmsnorm, buffer[:2], np.ones(8, np.float32), 1e-6, buffer[1:])
    refused(ValueError, ["out", "overlaps input"], silu_and_mul, buffer, buffer[:, :4])


def test_rows_that_overlap_each_other_are_not_written():
    x = np.lib.stride_tricks.as_strided(np.ones(20, np.float32), (3, 8), (16, 4))
    refused(ValueError, ["input", "overlap"], fused_add_rmsnorm, x, np.ones((3, 8), np.float32), np.ones(8, np.float32))


def test_read_only_memory_is_not_written():
    x, r, w = arrays()
    x.flags.writeable = False
    refused(ValueError, ["input", "read-only"], fused_add_rmsnorm, x, r, w)


@pytest.mark.parametrize("op", ["silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"])
def test_an_odd_last_axis_has_no_halves(op):
    refused(ValueError, ["input", "even"], getattr(numba_kernels, op), np.ones((2, 7), np.float32))


def test_rows_of_no_elements():
    refused(ValueError, ["input", "0 elements"], rmsnorm, np.ones((2, 0), np.float32), np.ones(0, np.float32))


def test_an_out_of_the_wrong_shape_or_dtype():
    x = np.ones((2, 8), np.float32)
    refused(ValueError, ["out", "(2, 4)"], silu_and_mul, x, np.ones((2, 8), np.float32))
    refused(TypeError, ["out", "fp16", "fp32"], silu_and_mul, x, np.ones((2, 4), np.float16))


@pytest.mark.parametrize(
    ("op", "elsewhere"),
    [
        ("fused_add_rmsnorm", "residual"),
        ("fused_add_rmsnorm", "weight"),
        ("rmsnorm", "weight"),
        ("rmsnorm", "out"),
        ("silu_and_mul", "out"),
    ],
)
@pytest.mark.parametrize("device", [CPU, 1])
def test_an_argument_on_another_device_than_the_input_is_named(monkeypatch, op, elsewhere, device):
    """The input is said to be on the first GPU, and one more argument on the CPU or on the second."""

    def describe(name, value):
        return replace(arrays_module.describe(name, value), device=device if name == elsewhere else 0)

    monkeypatch.setattr(calls, "describe", describe)
    given = inputs_of(op, 2, 8, "fp32")
    out = {"out": np.ones((2, 8), np.float32)} if elsewhere == "out" else {}
    place = "the CPU" if device == CPU else "cuda:1"
    words = [f"{elsewhere}: on {place} while input is on cuda:0"]
    refused(ValueError, words, getattr(numba_kernels, op), *given.values(), **out)


def test_memory_that_is_not_whole_elements_apart():
    raw = np.zeros(65, np.uint8)[1:]
    refused(ValueError, ["input", "no multiple of 4"], silu_and_mul, raw.view(np.float32).reshape(2, 8))


def test_a_row_too_wide_to_count():
    row = arrays_module.Array("input", 0, (1, 2**31), (2**31, 1), "fp16", CPU, 0, False, None)
    with pytest.raises(ValueError, match="input: rows of 2147483648 elements"):
        arguments.check_row_width(row)


def test_a_tensor_that_is_neither_on_the_cpu_nor_on_cuda():
    x = torch.ones(2, 8, device="meta")
    refused(TypeError, ["input", "meta"], rmsnorm, x, torch.ones(8, device="meta"))


def test_a_sparse_tensor():
    refused(TypeError, ["input", "sparse"], rmsnorm, torch.ones(2, 8).to_sparse(), torch.ones(8))


@pytest.mark.parametrize("layout", ["csr", "nested"])
def test_a_tensor_without_strides(layout):
    rows = torch.ones(2, 8)
    x = rows.to_sparse_csr() if layout == "csr" else torch.nested.nested_tensor([rows, rows])
    refused(TypeError, ["input: layout", layout], rmsnorm, x, torch.ones(8))


def test_a_mask_is_not_ignored():
    x = np.ma.array(np.ones((2, 8), np.float32), mask=False)
    refused(TypeError, ["input", "masked"], rmsnorm, x, np.ones(8, np.float32))


def test_a_tensor_whose_memory_was_freed():
    x, residual, weight = torch.ones(2, 8), torch.ones(2, 8), torch.ones(8)
    residual.untyped_storage().resize_(0)
    refused(TypeError, ["residual", "memory of its own"], fused_add_rmsnorm, x, residual, weight)
    refused(TypeError, ["out", "memory of its own"], rmsnorm, x, weight, out=residual)
    assert torch.equal(x, torch.ones(2, 8))


def test_the_tensors_of_a_vmap_have_no_memory():
    with pytest.raises(TypeError, match="input: a Tensor without memory of its own"):
        torch.vmap(lambda row: rmsnorm(row, torch.ones(8)))(torch.ones(2, 8))


@pytest.mark.parametrize("place", ["input", "residual"])
def test_what_autograd_would_have_to_record_is_not_written(place):
    x, residual, weight = torch.ones(2, 8), torch.ones(2, 8), torch.ones(8)
    {"input": x, "residual": residual}[place].requires_grad_()
    refused(ValueError, [place, "requires grad", "no_grad"], fused_add_rmsnorm, x, residual, weight)
    assert x.detach().eq(1).all()
    assert residual.detach().eq(1).all()
    with torch.no_grad():
        fused_add_rmsnorm(x, residual, weight)
    assert residual.detach().eq(2).all()


def test_an_out_that_requires_grad():
    out = torch.zeros(2, 8, requires_grad=True)
    refused(ValueError, ["out", "requires grad"], rmsnorm, torch.ones(2, 8), torch.ones(8), out=out)
    refused(ValueError, ["out", "requires grad"], silu_and_mul, torch.ones(2, 16), out)
    assert not out.detach().any()


def test_what_comes_back_from_a_gpu_leaves_what_lies_between_two_rows():
    buffer = np.arange(24, dtype=np.float32).reshape(3, 8)
    mine = arrays_module.as_rows(arrays_module.describe("input", buffer[:, 2:5]))
    host.put_rows(mine, np.full(mine.extent, 0x40000000, np.uint32))  # 2.0
    assert np.array_equal(buffer[:, 2:5], np.full((3, 3), 2.0))
    kept = [0, 1, 5, 6, 7]
    assert np.array_equal(buffer[:, kept], np.arange(24).reshape(3, 8)[:, kept])


@pytest.mark.parametrize(("pitch", "touches"), [(16, False), (32, False), (24, True), (40, True), (7 * 8, False)])
def test_slices_of_one_buffer_are_refused_only_where_they_touch(pitch, touches):
    """x has rows 16 elements apart; the residual's, of another stride, fall between them or on one of them."""
    buffer = np.ones(400, np.float32)
    x = np.lib.stride_tricks.as_strided(buffer, (4, 8), (16 * 4, 4))
    residual = np.lib.stride_tricks.as_strided(buffer[8:], (4, 8), (pitch * 4, 4))
    in_x = {16 * row + column for row in range(4) for column in range(8)}
    in_residual = {8 + pitch * row + column for row in range(4) for column in range(8)}
    assert bool(in_x & in_residual) == touches
    if touches:
        refused(ValueError, ["residual: overlaps input"], fused_add_rmsnorm, x, residual, np.ones(8, np.float32))
    else:
        fused_add_rmsnorm(x, residual, np.ones(8, np.float32))
        assert np.array_equal(residual, np.full((4, 8), 2.0))


def test_a_weight_between_the_rows_is_no_overlap_and_one_that_reaches_into_a_row_is():
    buffer = np.ones((3, 24), np.float32)
    fused_add_rmsnorm(buffer[:, :8], buffer[:, 8:16], buffer[1, 16:])
    refused(ValueError, ["residual: overlaps weight"], fused_add_rmsnorm, buffer[:, :8], buffer[:, 8:16], buffer[1, 15:23])


@given(st.data())
def test_overlap_is_what_the_sets_of_places_say(data):
    buffer = np.zeros(4096, np.float32)

    def drawn():
        count, width = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 12))
        offset, stride = data.draw(st.integers(0, 60)), data.draw(st.integers(0, 40))
        array = np.lib.stride_tricks.as_strided(buffer[offset:], (count, width), (stride * 4, 4))
        places = {offset + row * stride + column for row in range(count) for column in range(width)}
        return arrays_module.as_rows(arrays_module.describe("input", array)), places

    (one, its_places), (other, other_places) = drawn(), drawn()
    assert arrays_module.overlap(one, other) == bool(its_places & other_places)


def test_an_eps_that_fp32_makes_0_is_refused_and_0_is_not():
    refused(ValueError, ["eps", "1e-46", "0 in fp32"], rmsnorm, np.ones((2, 8), np.float32), np.ones(8, np.float32), 1e-46)
    rmsnorm(np.ones((2, 8), np.float32), np.ones(8, np.float32), 0.0)
    rmsnorm(np.ones((2, 8), np.float32), np.ones(8, np.float32), 1e-45)


def test_an_inference_tensor_is_written_in_inference_mode_alone():
    with torch.inference_mode():
        x, residual = torch.ones(2, 8), torch.ones(2, 8)
        fused_add_rmsnorm(x, residual, torch.ones(8))
    for which, tensors in (("input", (x, torch.ones(2, 8))), ("residual", (torch.ones(2, 8), residual))):
        kept = [t.clone() for t in tensors]
        refused(ValueError, [which, "inference mode"], fused_add_rmsnorm, *tensors, torch.ones(8))
        assert all(torch.equal(a, b) for a, b in zip(kept, tensors, strict=True))

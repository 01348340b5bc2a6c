"""The standard-library model: its published values, its checks, and agreement with the torch arithmetic."""

import math
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.arithmetic import evaluate
from reference.contracts import contract
from reference.rounding_model import add_rmsnorm_row, bf16

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def test_a_tie_in_the_sum_tells_r0_from_r1_in_fp16():
    row = ([1, 2], [2**-11, 0], [1, 1])
    assert add_rmsnorm_row(*row, dtype="fp16") == ([0.6328125, 1.2646484375], [1.0, 2.0])
    assert add_rmsnorm_row(*row, dtype="fp16", code="R1W0") == ([0.63232421875, 1.2646484375], [1.0, 2.0])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("R0W0", [0.9921875, 1.453125, -1.6484375, 0.75]),
        ("R1W0", [0.9921875, 1.453125, -1.6484375, 0.74609375]),
        ("R0W1", [0.9921875, 1.4453125, -1.65625, 0.74609375]),
        ("R1W1", [0.9921875, 1.4609375, -1.65625, 0.74609375]),
    ],
)
def test_one_bf16_row_tells_all_four_contracts_apart(code, expected):
    x, residual = [-0.5625, -0.078125, -0.109375, -1], [4.25, 7.5, -6.5, 4]
    weight = [1.484375, 1.078125, 1.375, 1.375]
    assert add_rmsnorm_row(x, residual, weight, code=code) == (expected, [3.6875, 7.4375, -6.625, 3.0])


def test_the_mean_is_over_the_true_width():
    output, _ = add_rmsnorm_row([1, 2, 3], [0, 0, 0], [1, 1, 1], eps=1e-30, dtype="fp32")
    assert output[0] == pytest.approx(1 / math.sqrt(14 / 3), rel=1e-6)


def test_rmsnorm_does_not_subtract_the_mean():
    output, _ = add_rmsnorm_row([1, 1], [0, 0], [1, 1], dtype="fp32")
    assert all(0.999999 < value < 1.0 for value in output)


@pytest.mark.parametrize(
    ("x", "residual", "weight"),
    [
        ([], [], []),
        ([1.0], [1.0, 2.0], [1.0]),
        ([1.0], [1.0], [1.0, 2.0]),
        ([True], [1.0], [1.0]),
        (["1"], [1.0], [1.0]),
        ([math.nan], [1.0], [1.0]),
        ([math.inf], [1.0], [1.0]),
        ([10**400], [1.0], [1.0]),
    ],
)
def test_rows_that_are_no_finite_rows_are_refused(x, residual, weight):
    with pytest.raises(ValueError, match=r"row|finite|range"):
        add_rmsnorm_row(x, residual, weight, dtype="fp16")


@pytest.mark.parametrize("eps", [0, -1e-6, 1e-46, 1e39, math.inf, math.nan, True, 10**400])
def test_an_eps_that_is_not_positive_and_finite_in_fp32_is_refused(eps):
    with pytest.raises(ValueError, match=r"eps|finite|range"):
        add_rmsnorm_row([1.0], [1.0], [1.0], eps=eps)


def test_values_beyond_the_storage_range_are_refused():
    with pytest.raises(OverflowError):
        add_rmsnorm_row([65520], [0], [1], dtype="fp16")
    with pytest.raises(OverflowError):
        add_rmsnorm_row([65504], [65504], [1], dtype="fp16")
    with pytest.raises(OverflowError):
        bf16(3.4e38)


@pytest.mark.parametrize("argument", [{"code": "W0"}, {"dtype": "fp8"}])
def test_unknown_codes_and_dtypes_are_refused(argument):
    with pytest.raises(ValueError, match="known"):
        add_rmsnorm_row([1.0], [1.0], [1.0], **argument)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bf16_agrees_with_the_upper_half_of_binary32(value):
    bits = struct.unpack("I", struct.pack("f", value))[0]
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    expected = struct.unpack("f", struct.pack("I", upper))[0]
    if math.isinf(expected):
        with pytest.raises(OverflowError):
            bf16(value)
    else:
        assert bf16(value) == expected


numbers = st.floats(-8, 8, width=16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", ["R0W0", "R1W0", "R0W1", "R1W1"])
@settings(max_examples=30)
@given(rows=st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=9))
def test_the_model_and_the_torch_arithmetic_agree_to_the_order_of_the_sum(code, dtype, rows):
    x, residual, weight = ([row[i] for row in rows] for i in range(3))
    output, new_residual = add_rmsnorm_row(x, residual, weight, code=code, dtype=dtype)
    storage = DTYPES[dtype]
    inputs = {"input": x, "residual": residual, "weight": weight}
    tensors = {name: torch.tensor(row, dtype=storage) for name, row in inputs.items()}
    got = evaluate("fused_add_rmsnorm", tensors, contract("fused_add_rmsnorm", code))
    assert got["residual"].tolist() == new_residual
    # Sums differ in order, rsqrt in its last bit: an element may fall on the other side of a rounding boundary, twice
    # for W1, so within 2 ulp of T (3 x 2^-24 relative in fp32), not more.
    ulp = {"fp16": 2.0**-10, "bf16": 2.0**-7, "fp32": 2.0**-21}[dtype]
    for a, b in zip(got["output"].tolist(), output, strict=True):
        assert abs(a - b) <= 2 * ulp * max(abs(a), abs(b)) + 2.0**-24

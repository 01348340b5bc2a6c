"""The plain arithmetic: exact values, what every contract shares, and faults that people met in the field."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.arithmetic import evaluate, evaluate_f64
from reference.contracts import Contract, contract, corners
from reference.operators import OPERATORS
from reference.rounding import round_from_f64

HALVES = [torch.float16, torch.bfloat16]
ADD_NORMS = [name for name, op in OPERATORS.items() if op.mutated]
NORMS = [name for name, op in OPERATORS.items() if op.vectors and not op.mutated]
GATED = [name for name, op in OPERATORS.items() if op.activation]


def rows_of(op, dtype, rows=8, width=64, seed=0, scale=1.0):
    """Inputs of `op` with normal values."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return (torch.randn(*shape, generator=generator) * scale).to(dtype)

    if op in GATED:
        return {"input": normal(rows, 2 * width)}
    inputs = {"input": normal(rows, width), "residual": normal(rows, width), "weight": normal(width)}
    return {name: inputs[name] for name in OPERATORS[op].inputs}


def ulp_distance(a, b):
    """Steps between 16-bit values on the ordered integer line."""

    def line(tensor):
        bits = tensor.view(torch.int16).int()
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    return (line(a) - line(b)).abs()


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
    inputs = {
        "input": torch.tensor([-0.5625, -0.078125, -0.109375, -1], dtype=torch.bfloat16),
        "residual": torch.tensor([4.25, 7.5, -6.5, 4], dtype=torch.bfloat16),
        "weight": torch.tensor([1.484375, 1.078125, 1.375, 1.375], dtype=torch.bfloat16),
    }
    got = evaluate("fused_add_rmsnorm", inputs, contract("fused_add_rmsnorm", code))
    assert got["output"].tolist() == expected
    assert got["residual"].tolist() == [3.6875, 7.4375, -6.625, 3.0]
    wide = evaluate_f64("fused_add_rmsnorm", inputs, contract("fused_add_rmsnorm", code))
    assert round_from_f64(wide["output"], torch.bfloat16).tolist() == expected
    assert round_from_f64(wide["residual"], torch.bfloat16).tolist() == [3.6875, 7.4375, -6.625, 3.0]


@pytest.mark.parametrize(("code", "first"), [("R0W0", 0.6328125), ("R1W0", 0.63232421875)])
def test_a_tie_in_the_sum_tells_r0_from_r1_in_fp16(code, first):
    inputs = {
        "input": torch.tensor([1, 2], dtype=torch.float16),
        "residual": torch.tensor([2**-11, 0], dtype=torch.float16),
        "weight": torch.ones(2, dtype=torch.float16),
    }
    got = evaluate("fused_add_rmsnorm", inputs, contract("fused_add_rmsnorm", code))
    assert got["output"].tolist() == [first, 1.2646484375]
    assert got["residual"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("op", OPERATORS)
@given(seed=st.integers(0, 2**32), width=st.integers(1, 40), exponent=st.integers(-13, 13))
@settings(max_examples=15)
def test_the_contracts_of_an_operator_coincide_in_fp32(op, seed, width, exponent):
    inputs = rows_of(op, torch.float32, rows=2, width=width, seed=seed, scale=2.0**exponent)
    for form in (evaluate, evaluate_f64):
        first, *others = (form(op, inputs, c) for c in corners(op))
        for other in others:
            for name in first:
                assert torch.equal(first[name], other[name])


@pytest.mark.parametrize("dtype", HALVES)
@given(seed=st.integers(0, 2**32), spread=st.integers(0, 12))
@settings(max_examples=30)
def test_the_new_residual_is_the_exact_sum_rounded_once_in_every_contract(dtype, seed, spread):
    """fp32 has more than twice the digits of T plus two, so rounding the sum to fp32 first changes nothing."""
    inputs = rows_of("fused_add_rmsnorm", dtype, seed=seed)
    inputs["residual"] = (inputs["residual"].float() * 2.0**-spread).to(dtype)
    exact = inputs["input"].double() + inputs["residual"].double()
    for c in corners("fused_add_rmsnorm"):
        got = evaluate("fused_add_rmsnorm", inputs, c)["residual"]
        assert torch.equal(got, round_from_f64(exact, dtype))


@pytest.mark.parametrize("op", ADD_NORMS + NORMS)
@pytest.mark.parametrize("dtype", HALVES)
@given(seed=st.integers(0, 2**32), exponent=st.integers(-3, 6))
@settings(max_examples=10)
def test_without_eps_a_power_of_two_scales_out(op, dtype, seed, exponent):
    inputs = rows_of(op, dtype, rows=2, seed=seed)
    for name in ("input", "residual"):
        if name in inputs:  # values coarse enough to stay exact when scaled down in fp16
            inputs[name] = (inputs[name] * 64).round() / 64
    scaled = {n: t if n == "weight" else t * 2.0**exponent for n, t in inputs.items()}
    for c in corners(op, eps=0.0):
        assert torch.equal(evaluate(op, inputs, c)["output"], evaluate(op, scaled, c)["output"])


@given(width=st.integers(1, 12), padding=st.integers(1, 12))
def test_a_padded_row_is_another_row_because_the_mean_is_over_the_true_width(width, padding):
    row = torch.arange(1.0, width + 1)
    padded = torch.cat([row, torch.zeros(padding)])
    got = evaluate("rmsnorm", {"input": row, "weight": torch.ones(width)}, Contract("W0", 0.0))["output"]
    wide = evaluate("rmsnorm", {"input": padded, "weight": torch.ones(width + padding)}, Contract("W0", 0.0))["output"]
    expected = got * math.sqrt((width + padding) / width)
    assert torch.allclose(wide[:width], expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("op", OPERATORS)
def test_fp32_arithmetic_is_within_a_step_of_float64_for_each_rounding(op, dtype):
    """One step for one rounding; a second rounding can double a step of the first: three."""
    inputs = rows_of(op, dtype, rows=16, width=512)
    for c in corners(op):
        rounded = round_from_f64(evaluate_f64(op, inputs, c)["output"], dtype)
        distance = ulp_distance(evaluate(op, inputs, c)["output"], rounded)
        assert distance.max() <= (3 if c.code in ("W1", "R0W1", "R1W1", "S1", "S2") else 1)
        assert (distance > 0).float().mean() < 1e-3


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("op", GATED)
def test_no_finite_gate_gives_nan_and_all_are_within_a_step_of_float64(op, dtype):
    """All 65536 gates of the dtype, up = 1."""
    gates = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    finite = gates[gates.isfinite()]
    inputs = {"input": torch.stack([finite, torch.ones_like(finite)], dim=-1)}
    assert finite.numel() == {torch.float16: 63488, torch.bfloat16: 65280}[dtype]
    got = evaluate(op, inputs, contract(op, "S0"))["output"]
    truth = round_from_f64(evaluate_f64(op, inputs, contract(op, "S0"))["output"], dtype)
    assert not got.isnan().any()
    assert ulp_distance(got, truth).max() <= 1


def test_eps_is_passed_never_taken_from_the_dtype():
    """D = 32, |x| = 0.058: an eps of finfo(bfloat16) makes the output 1.8 times too small."""
    signs = torch.tensor([1.0, -1.0]).repeat(16)
    inputs = {"input": (signs * 0.058).bfloat16(), "weight": torch.ones(32, dtype=torch.bfloat16)}
    right = evaluate("rmsnorm", inputs, Contract("W0", 1e-6))["output"]
    wrong = evaluate("rmsnorm", inputs, Contract("W0", torch.finfo(torch.bfloat16).eps))["output"]
    assert torch.equal(right, signs.bfloat16())
    assert (right / wrong)[0].item() == pytest.approx(1.8, abs=0.05)


@pytest.mark.parametrize("dtype", HALVES)
def test_eps_stays_fp32_beside_16_bit_rows(dtype):
    """Mean square 2e-4: an eps rounded to fp16 and floored would be 18 % off."""
    value = torch.tensor([math.sqrt(2e-4)] * 8).to(dtype)
    got = evaluate("rmsnorm", {"input": value, "weight": torch.ones(8, dtype=dtype)}, Contract("W0", 1e-6))["output"]
    exact = value.double() / (value.double().square() + 1e-6).sqrt()
    assert torch.equal(got, round_from_f64(exact, dtype))


def test_two_eps_show_at_small_scales_and_not_at_unit_scale():
    def output(scale, eps):
        row = torch.full((16,), scale)
        return evaluate("rmsnorm", {"input": row, "weight": torch.ones(16)}, Contract("W0", eps))["output"][0].item()

    assert output(0.02, 1e-6) / output(0.02, 1e-5) == pytest.approx(1.011, abs=5e-4)
    assert output(1.0, 1e-6) / output(1.0, 1e-5) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("value", [256.0, 65504.0])
def test_a_square_beyond_fp16_does_not_overflow(value):
    row = torch.ones(8, dtype=torch.float16)
    row[3] = value
    got = evaluate("rmsnorm", {"input": row, "weight": torch.ones(8, dtype=torch.float16)}, contract("rmsnorm"))
    assert got["output"].isfinite().all()
    assert got["output"][3].item() == pytest.approx(math.sqrt(8), rel=1e-3)
    assert got["output"][0] > 0


@pytest.mark.parametrize(("op", "name"), [(op, name) for op in OPERATORS for name in OPERATORS[op].inputs if name != "weight"])
def test_a_nan_reaches_the_output_of_its_row_and_no_other(op, name):
    inputs = rows_of(op, torch.bfloat16, rows=3, width=8)
    inputs[name][1, 2] = math.nan
    for c in corners(op):
        nan = evaluate(op, inputs, c)["output"].isnan()
        assert not nan[[0, 2]].any()
        assert nan[1].all() if op not in GATED else nan[1].sum() == 1


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("op", ADD_NORMS + NORMS)
def test_an_fp32_weight_keeps_its_digits_beside_16_bit_rows(op, dtype):
    inputs = rows_of(op, dtype)
    inputs["weight"] = torch.randn(64, generator=torch.Generator().manual_seed(1))
    for c in corners(op):
        got = evaluate(op, inputs, c)["output"]
        assert got.dtype is dtype
        rounded = round_from_f64(evaluate_f64(op, inputs, c)["output"], dtype)
        assert (got == rounded).float().mean() > 0.99
        narrow = evaluate(op, {**inputs, "weight": inputs["weight"].to(dtype)}, c)["output"]
        assert not torch.equal(got, narrow)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int16])
def test_a_weight_of_any_other_dtype_is_a_type_error(dtype):
    inputs = rows_of("rmsnorm", torch.float16)
    with pytest.raises(TypeError, match="weight must be"):
        evaluate("rmsnorm", {**inputs, "weight": torch.ones(64).to(dtype)}, contract("rmsnorm"))


def test_a_residual_of_another_dtype_is_refused_not_narrowed():
    inputs = rows_of("fused_add_rmsnorm", torch.bfloat16)
    with pytest.raises(TypeError, match="residual must have"):
        evaluate("fused_add_rmsnorm", {**inputs, "residual": inputs["residual"].float()}, contract("fused_add_rmsnorm"))


def test_the_gemma_bias_is_added_in_fp32():
    """1 + 2^-9 has no bfloat16: added there, it is 1."""
    inputs = {"input": torch.full((4,), 255.0).bfloat16(), "weight": torch.full((4,), 2.0**-9).bfloat16()}
    wide = evaluate_f64("gemma_rmsnorm", inputs, contract("gemma_rmsnorm"))["output"]
    narrow = evaluate_f64("gemma_rmsnorm", inputs, Contract("W0", 1e-6, 1.0, bias_in_fp32=False))["output"]
    assert (wide / narrow).tolist() == pytest.approx([1 + 2.0**-9] * 4, rel=1e-12)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0)])
def test_leading_axes_are_rows_and_may_be_none_or_empty(op, dtype, shape):
    inputs = rows_of(op, dtype, rows=max(1, math.prod(shape)), width=5)
    count = math.prod(shape)
    shaped = {n: t if n == "weight" else t[:count].reshape(*shape, t.shape[-1]) for n, t in inputs.items()}
    for form in (evaluate, evaluate_f64):
        flat = form(op, {n: t if n == "weight" else t[:count] for n, t in inputs.items()}, contract(op))
        got = form(op, shaped, contract(op))
        for name in OPERATORS[op].outputs:
            assert got[name].shape == (*shape, 5)
            assert torch.equal(got[name].reshape(count, 5), flat[name])


@pytest.mark.parametrize("op", OPERATORS)
def test_inputs_are_not_touched(op):
    inputs = rows_of(op, torch.bfloat16)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    for c in corners(op):
        evaluate(op, inputs, c)
        evaluate_f64(op, inputs, c)
    assert all(torch.equal(inputs[name], before[name]) for name in inputs)


def test_strided_rows_are_read_where_they_are():
    wide = torch.randn(4, 12, generator=torch.Generator().manual_seed(0)).bfloat16()
    weight = torch.ones(8, dtype=torch.bfloat16)
    strided = evaluate("rmsnorm", {"input": wide[:, :8], "weight": weight}, contract("rmsnorm"))
    dense = evaluate("rmsnorm", {"input": wide[:, :8].contiguous(), "weight": weight}, contract("rmsnorm"))
    assert torch.equal(strided["output"], dense["output"])


@pytest.mark.parametrize(
    ("op", "change", "error"),
    [
        ("silu_and_mul", {"input": torch.ones(2, 5)}, ValueError),
        ("silu_and_mul", {"input": torch.ones(2, 0)}, ValueError),
        ("silu_and_mul", {"input": torch.tensor(1.0)}, ValueError),
        ("silu_and_mul", {"input": torch.ones(2, 4, dtype=torch.float64)}, TypeError),
        ("rmsnorm", {"weight": torch.ones(3)}, ValueError),
        ("rmsnorm", {"weight": torch.ones(1, 64)}, ValueError),
        ("fused_add_rmsnorm", {"residual": torch.ones(8, 63)}, ValueError),
        ("fused_add_rmsnorm", {"residual": torch.ones(64)}, ValueError),
    ],
)
def test_shapes_and_dtypes_that_do_not_fit_are_errors(op, change, error):
    inputs = {**rows_of(op, torch.float32), **change}
    for form in (evaluate, evaluate_f64):
        with pytest.raises(error):
            form(op, inputs, contract(op))


def test_a_missing_tensor_is_named():
    with pytest.raises(KeyError, match="weight is missing"):
        evaluate("rmsnorm", {"input": torch.ones(4)}, contract("rmsnorm"))


@pytest.mark.parametrize("wrong", [Contract("S0"), Contract("W0"), Contract("R0W0", weight_bias=1.0)])
def test_another_operators_contract_is_refused(wrong):
    with pytest.raises(ValueError, match="fused_add_rmsnorm"):
        evaluate("fused_add_rmsnorm", rows_of("fused_add_rmsnorm", torch.bfloat16), wrong)

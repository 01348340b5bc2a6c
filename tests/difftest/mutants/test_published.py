"""Other projects' comparisons, applied as they apply them: hand values, and what each lets through."""

import pytest
import torch

from difftest.cases.case import Case
from difftest.mutants import plain
from difftest.mutants.published import NORMS, PUBLISHED, Normal, Witness, close, close_either, expected
from reference.contracts import contract
from reference.operators import OPERATORS, operator

BY_NAME = {each.name: each for each in PUBLISHED}


def one(value):
    return torch.tensor([value])


@pytest.mark.parametrize(
    ("actual", "right", "rtol", "atol", "passes"),
    [
        (1.01, 1.0, 1e-2, 1e-3, True),  # 0.01 <= 0.001 + 0.01
        (1.012, 1.0, 1e-2, 1e-3, False),
        (0.0, 4e-6, 1e-2, 1e-2, True),  # zeros for small values
        (float("inf"), float("inf"), 0.0, 0.0, True),
        (float("inf"), 1.0, 1e-2, 1e-2, False),
        (float("nan"), float("nan"), 1e-2, 1e-2, False),
    ],
)
def test_close_is_torchs(actual, right, rtol, atol, passes):
    assert close(one(actual), one(right), rtol, atol) is passes
    try:
        torch.testing.assert_close(one(actual), one(right), rtol=rtol, atol=atol)
        assert passes
    except AssertionError:
        assert not passes


@pytest.mark.parametrize(
    ("actual", "right", "passes"),
    [
        (1.5, 100.0, False),
        (100.5, 100.0, True),  # 0.5 is far, 0.5 % is not
        (0.009, 1e-6, True),  # 9000 times too large, and 0.009 is near
        (0.02, 1e-6, False),
        (float("inf"), float("inf"), False),
        (float("nan"), float("nan"), False),
    ],
)
def test_flashinfer_benchs_element_fails_where_both_errors_are_large(actual, right, passes):
    assert close_either(one(actual), one(right), 1e-2, 1e-2) is passes


def test_the_defaults_of_assert_close_are_torchs_own():
    for dtype, name in ((torch.float16, "fp16"), (torch.bfloat16, "bf16"), (torch.float32, "fp32")):
        rtol, atol = BY_NAME["torch.testing.assert_close"].tolerances["rmsnorm"][name]
        for actual, passes in ((1 + 0.7 * (rtol + atol), True), (1 + 4 * (rtol + atol), False)):
            both = one(actual).to(dtype), one(1.0).to(dtype)
            assert close(*both, rtol, atol) is passes
            if passes:
                torch.testing.assert_close(*both)
            else:
                with pytest.raises(AssertionError):
                    torch.testing.assert_close(*both)


def test_every_operator_named_is_one_and_every_norm_is_tested_by_all():
    for each in PUBLISHED:
        assert set(each.tolerances) <= set(OPERATORS)
        assert set(NORMS) <= set(each.tolerances)


def test_vllms_own_inputs_are_small_and_its_weight_is_about_one():
    values = Normal(1.0, 0.1, shrink=True).draw(operator("gemma_rmsnorm"), 16, 5120, torch.Generator().manual_seed(0))
    assert float(values["input"].std()) == pytest.approx(1 / 10240, rel=0.02)
    assert float(values["weight"].mean()) == pytest.approx(0.0, abs=0.01)
    assert float(values["weight"].std()) == pytest.approx(0.1, rel=0.1)


def without_the_mean_square(input, weight, eps):
    """What vLLM's small inputs make of a norm, almost: eps dominates."""
    return (input.float() * (eps**-0.5) * weight.float()).to(input.dtype)


def test_vllms_own_inputs_let_a_norm_without_its_mean_square_through_at_wide_rows():
    project = BY_NAME["vLLM"]
    for case, inputs in project.own_calls("rmsnorm", ""):
        if case.width >= 5120 and case.rows == 7:
            outputs = {"output": without_the_mean_square(inputs["input"], inputs["weight"], 1e-6)}
            right = {"output": plain.rmsnorm(inputs["input"], inputs["weight"], 1e-6)}
            assert project.lets_through(case, outputs, right)


def case_of(regime):
    return Case("rmsnorm", "bf16", (4,), 64, regime, 1, contract("rmsnorm"))


def test_a_witness_keeps_who_caught_and_leaves_out_what_a_right_nan_makes_meaningless():
    witness = Witness.of("rmsnorm")
    assert "FlashInfer" in witness.on_cases
    witness.see(case_of("inf_nan"), {})
    assert not any(witness.on_cases.values())
    right = expected(case_of("normal"))
    witness.see(case_of("normal"), right)
    assert not any(witness.on_cases.values())
    witness.see(case_of("normal"), {"output": right["output"] * 2})
    assert all(caught for name, caught in witness.on_cases.items() if name != "FlashInfer")
    assert not witness.on_cases["FlashInfer"]  # its norm's test has no bf16


def test_what_raises_is_caught_by_all_of_them():
    witness = Witness.of("rmsnorm")
    witness.see(case_of("normal"), {})
    assert witness.on_cases["KernelBench"]

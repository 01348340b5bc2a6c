"""What the oracle promises beyond agreement: ties, certainty at full width, the odd values, fractional errors."""

import math

import pytest
import torch

from reference.arithmetic import evaluate
from reference.contracts import contract, corners
from reference.exact.oracle import correctly_rounded, fractional_ulp_error
from reference.rounding import rounding_interval, ulp_of

from .rows import DTYPES, GATED, NORMS, inputs_of

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("R0W0", [0.9921875, 1.453125, -1.6484375, 0.75]),
        ("R1W0", [0.9921875, 1.453125, -1.6484375, 0.74609375]),
        ("R0W1", [0.9921875, 1.4453125, -1.65625, 0.74609375]),
        ("R1W1", [0.9921875, 1.4609375, -1.65625, 0.74609375]),
    ],
)
def test_the_row_that_tells_four_contracts_apart(code, right):
    rows = {
        "input": torch.tensor([[-0.5625, -0.078125, -0.109375, -1]]).bfloat16(),
        "residual": torch.tensor([[4.25, 7.5, -6.5, 4]]).bfloat16(),
        "weight": torch.tensor([1.484375, 1.078125, 1.375, 1.375]).bfloat16(),
    }
    outputs = correctly_rounded("fused_add_rmsnorm", rows, contract("fused_add_rmsnorm", code)).outputs
    assert outputs["output"].tolist() == [right]
    assert outputs["residual"].tolist() == [[3.6875, 7.4375, -6.625, 3.0]]


@pytest.mark.parametrize(("code", "right"), [("R0W0", [0.6328125, 1.2646484375]), ("R1W0", [0.63232421875, 1.2646484375])])
def test_the_fp16_row_that_tells_the_sum_from_the_stored_sum(code, right):
    rows = {"input": [[1.0, 2.0]], "residual": [[2.0**-11, 0.0]], "weight": [1.0, 1.0]}
    rows = {name: torch.tensor(values).half() for name, values in rows.items()}
    outputs = correctly_rounded("fused_add_rmsnorm", rows, contract("fused_add_rmsnorm", code)).outputs
    assert outputs["output"].tolist() == [right]
    assert outputs["residual"].tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", NORMS + GATED)
def test_fewer_than_one_in_a_million_is_undecided_at_width_4096_and_all_are_resolved(op, dtype):
    elements = undecided = 0
    for case in corners(op)[::3] + corners(op)[1:2]:
        result = correctly_rounded(op, inputs_of(op, 64, 4096, dtype, scale=4.0), case)
        elements, undecided = elements + result.elements, undecided + result.undecided
        assert result.resolved == result.undecided
    assert elements >= 500_000
    assert undecided / elements < 1e-6


def test_an_exact_tie_goes_to_even():
    """eps 0 and a row of ones leave the fp32 weight as it is: 1 + 2^-8 is half way between bf16 1 and 1 + 2^-7."""
    weight = torch.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 1 + 3 * 2.0**-8 - 2.0**-20])
    result = correctly_rounded("rmsnorm", {"input": torch.ones(1, 4).bfloat16(), "weight": weight}, contract("rmsnorm", eps=0.0))
    assert result.outputs["output"].tolist() == [[1.0, 1 + 2.0**-6, 1 + 2.0**-7, 1 + 2.0**-7]]
    assert result.undecided == result.resolved == 2


def test_a_tie_made_by_a_rational_root_goes_to_even():
    """1 and 7 have mean square 25 and norms 1/5 and 7/5; times 5 (1 + 2^-8) and 5 / 7 of a tie they are ties again."""
    rows = torch.tensor([[1.0, 7.0]]).bfloat16()
    weight = torch.tensor([5 * (1 + 2.0**-8), 5 * (1 + 3 * 2.0**-8)])
    result = correctly_rounded("rmsnorm", {"input": rows, "weight": weight}, contract("rmsnorm", eps=0.0))
    assert result.outputs["output"][0, 0].item() == 1.0
    assert result.undecided >= 1


def test_a_rounded_norm_times_a_weight_that_makes_a_tie_goes_to_even():
    rows = {"input": torch.ones(1, 2).bfloat16(), "weight": torch.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8])}
    assert correctly_rounded("rmsnorm", rows, contract("rmsnorm", "W1")).outputs["output"].tolist() == [[1.0, 1 + 2.0**-6]]


@pytest.mark.parametrize("op", GATED)
@pytest.mark.parametrize("gate", [1.0, 20.0, 3e4, 2.0**-80])
def test_an_activation_just_beside_a_tie_is_on_the_right_side(op, gate):
    """act(gate) is just below a large gate and just above half of a small one: float64 cannot tell, rounding must."""
    gate = 2.0 ** round(math.log2(gate)) * (1 + 2.0**-7)
    up = 1.5  # gate * up is half way between two bf16 values
    result = correctly_rounded(op, {"input": torch.tensor([[gate, up]]).bfloat16()}, contract(op))
    stored = result.outputs["output"].item()
    assert result.undecided == 0
    if gate > 10:
        assert stored < gate * up
    if gate < 1e-10:
        assert stored > gate * up / 2


@pytest.mark.parametrize("op", NORMS + GATED)
def test_the_contracts_coincide_for_fp32(op):
    inputs = inputs_of(op, 4, 64, FP32)
    results = [correctly_rounded(op, inputs, case).outputs["output"] for case in corners(op)]
    assert all(torch.equal(result, results[0]) for result in results)


def test_a_result_beyond_the_largest_value_is_infinite_and_right():
    inputs = {"input": torch.tensor([[30000.0, 30000.0, 2.25, 2.0]]).half()}
    result = correctly_rounded("silu_and_mul", inputs, contract("silu_and_mul"))
    assert result.outputs["output"].tolist() == [[math.inf, 60000.0]]
    assert fractional_ulp_error(result.outputs["output"], result).tolist()[0][0] == 0


def test_squares_beyond_fp32_are_taken_at_their_true_value():
    inputs = {"input": torch.full((1, 4), 1e30).bfloat16(), "weight": torch.ones(4).bfloat16()}
    assert correctly_rounded("rmsnorm", inputs, contract("rmsnorm")).outputs["output"].tolist() == [[1.0] * 4]


def test_a_nan_fills_its_row_and_an_infinity_leaves_zeros_and_a_nan():
    inputs = {"input": torch.ones(3, 3), "weight": torch.ones(3)}
    inputs["input"][0, 1], inputs["input"][1, 1] = math.nan, math.inf
    output = correctly_rounded("rmsnorm", inputs, contract("rmsnorm")).outputs["output"]
    assert output[0].isnan().all()
    assert output[1, [0, 2]].tolist() == [0.0, 0.0]
    assert output[1, 1].isnan()
    assert output[2].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", NORMS + GATED)
def test_a_correctly_rounded_value_is_half_an_ulp_off_at_most(op, dtype):
    for case in corners(op):
        inputs = inputs_of(op, 8, 256, dtype)
        result = correctly_rounded(op, inputs, case)
        assert fractional_ulp_error(result.outputs["output"], result).abs().max() <= 0.5 + 1e-6
        assert fractional_ulp_error(evaluate(op, inputs, case)["output"], result).abs().max() < (60 if dtype is FP32 else 2)


def test_a_fractional_error_is_signed_and_counts_neighbours():
    inputs = inputs_of("rmsnorm", 1, 64, BF16)
    result = correctly_rounded("rmsnorm", inputs, contract("rmsnorm"))
    right = result.outputs["output"].abs()
    right_pattern = result.outputs["output"].view(torch.int16)
    farther = (right_pattern + 1).view(BF16)  # one step away from zero
    step = fractional_ulp_error(farther, result) - fractional_ulp_error(result.outputs["output"], result)
    inside = torch.frexp(right.float()).mantissa < 0.98
    assert torch.equal(step[inside], torch.sign(result.outputs["output"].double())[inside])


def test_a_fractional_error_between_classes_is_nan():
    inputs = inputs_of("rmsnorm", 1, 4, BF16)
    result = correctly_rounded("rmsnorm", inputs, contract("rmsnorm"))
    candidate = result.outputs["output"].clone()
    candidate[0, 1], candidate[0, 2] = math.nan, math.inf
    assert fractional_ulp_error(candidate, result).isnan().tolist() == [[False, True, True, False]]


@pytest.mark.parametrize("dtype", [FP16, BF16])
def test_a_rounding_interval_ends_half_way_to_every_neighbour(dtype):
    """All finite values of a 16-bit dtype."""
    infinity = torch.tensor(math.inf, dtype=dtype).view(torch.int16).item()
    positive = torch.arange(infinity + 1, dtype=torch.int16).view(dtype)
    lowest, highest = rounding_interval(positive)
    halves = (positive[:-2].double() + positive[1:-1].double()) / 2
    assert torch.equal(highest[:-2], halves)
    assert torch.equal(lowest[1:-1], halves)
    assert highest[-2] == lowest[-1] == torch.finfo(dtype).max + ulp_of(positive[-2:-1].double(), dtype).item() / 2
    assert torch.equal(rounding_interval(-positive)[0], -highest)
    assert torch.equal(ulp_of(positive[1:-2].double(), dtype), positive[2:-1].double() - positive[1:-2].double())


def test_nothing_is_mutated():
    inputs = inputs_of("fused_add_rmsnorm", 2, 16, BF16)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    correctly_rounded("fused_add_rmsnorm", inputs, contract("fused_add_rmsnorm"))
    assert all(torch.equal(inputs[name], before[name]) for name in inputs)

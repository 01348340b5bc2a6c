"""The attainable set: what fp32 evaluates lies in it, what lies just outside is not fp32's doing."""

import itertools

import pytest
import torch

from reference.arithmetic import evaluate
from reference.contracts import contract, corners
from reference.exact import bounds
from reference.exact.activations import ACTIVATIONS
from reference.exact.attainable import attainable
from reference.exact.oracle import correctly_rounded

from .rows import DTYPES, GATED, NORMS, ROOTS, SUMS, inputs_of, run

BF16 = torch.bfloat16


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", NORMS + GATED)
def test_the_correctly_rounded_value_and_plain_fp32_are_attainable_at_any_scale(op, dtype):
    scales = (1e-6, 1e-3, 1.0, 40.0, 1e4) if dtype is torch.float16 else (1e-38, 1e-20, 1e-3, 1.0, 40.0, 1e4, 1e18, 1e30)
    for scale, case in itertools.product(scales, corners(op)):
        inputs = inputs_of(op, 4, 128, dtype, scale=scale)
        ends = attainable(op, inputs, case)
        for outputs in (evaluate(op, inputs, case), correctly_rounded(op, inputs, case).outputs):
            for name, tensor in outputs.items():
                assert ends.contains(tensor, name).all(), (scale, case, name)


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize("root", ROOTS)
def test_every_order_and_root_is_attainable(total, root):
    for dtype, case in itertools.product(DTYPES.values(), corners("rmsnorm")):
        inputs = inputs_of("rmsnorm", 4, 512, dtype)
        for reciprocal, late in itertools.product((False, True), repeat=2):
            outputs = run("rmsnorm", inputs, case, total=total, root=root, reciprocal=reciprocal, late=late)
            assert attainable("rmsnorm", inputs, case).contains(outputs["output"]).all()


@pytest.mark.parametrize("op", NORMS + GATED)
def test_nearly_every_16_bit_element_has_one_attainable_value(op):
    for case in corners(op):
        ends = attainable(op, inputs_of(op, 16, 1024, BF16), case)
        free = (ends.lowest() != ends.highest()).double().mean()
        assert free < 4e-3
        steps = ends.highest().view(torch.int16).int() - ends.lowest().view(torch.int16).int()
        if op in NORMS:
            assert steps.abs().max() <= 1 or case.rounds_norm  # a step of the inner value may be two of the outer


@pytest.mark.parametrize("op", NORMS + GATED)
def test_fp32_sets_are_a_handful_of_ulp_where_nothing_cancels(op):
    inputs = inputs_of(op, 4, 128, torch.float32)
    ends = attainable(op, inputs, corners(op)[0])
    ulps = (ends.highest().view(torch.int32) - ends.lowest().view(torch.int32)).abs().double()
    assert ulps.median() <= 2 * (0.5 * (127 + 4) + 8)  # the bound at width 128, either side
    assert ulps.min() >= 1


def test_a_neighbour_of_a_settled_element_is_not_attainable():
    inputs = inputs_of("rmsnorm", 4, 512, BF16)
    ends = attainable("rmsnorm", inputs, contract("rmsnorm"))
    settled = ends.lowest() == ends.highest()
    for step in (-1, 1):
        neighbour = (ends.lowest().view(torch.int16) + step).view(BF16)
        assert not ends.contains(neighbour)[settled].any()


def test_the_new_residual_has_one_value():
    inputs = inputs_of("fused_add_rmsnorm", 2, 32, BF16)
    ends = attainable("fused_add_rmsnorm", inputs, contract("fused_add_rmsnorm"))
    assert torch.equal(ends.lowest("residual"), ends.highest("residual"))


def test_non_finite_elements_are_not_judged():
    inputs = inputs_of("rmsnorm", 3, 32, BF16)
    inputs["input"][1, 0] = torch.nan
    ends = attainable("rmsnorm", inputs, contract("rmsnorm"))
    assert ends.judged["output"].all(-1).tolist() == [True, False, True]
    assert ends.lowest()[1].isnan().all()


def test_a_subnormal_product_may_be_flushed_and_a_normal_one_may_not():
    inputs = {"input": torch.tensor([[1.0, 1.0, 1e-39, 1e-37]])}
    ends = attainable("silu_and_mul", inputs, contract("silu_and_mul"))
    assert ends.contains(torch.zeros(1, 2)).tolist() == [[True, False]]


def test_the_chain_of_additions_is_what_the_rule_says():
    assert [bounds.additions_in_sequence(width) for width in (1, 2, 111, 512, 4096, 131072)] == [0, 1, 110, 138, 138, 522]


def test_the_bound_on_rstd_holds_for_adversarial_rows_at_the_longest_chain():
    """128 squares a lane, each addition rounding the same way, is the worst that the rule admits: most of it is used."""
    worst = 0.0
    for seed in range(40):
        value = 1.0 + torch.rand(1, generator=torch.Generator().manual_seed(seed)).item()
        row = torch.full((1, 4096), value)
        case = contract("rmsnorm", eps=0.0)
        inputs = {"input": row, "weight": torch.ones(4096)}
        output = run("rmsnorm", inputs, case, total=SUMS[1])["output"]
        assert attainable("rmsnorm", inputs, case).contains(output).all()
        worst = max(worst, abs(output[0, 0].double().item() - 1.0))
    one = torch.ones(1, 1, dtype=torch.float64)
    assert 0.1 < worst / bounds.rstd_error(138, one, one).item() < 1


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_an_activation_bound_is_small_where_the_gate_is_and_grows_with_it(name):
    gate = torch.tensor([-8.0, -1.0, 0.5, 4.0], dtype=torch.float64)
    argument, factor, _ = ACTIVATIONS[name].factor(gate)
    ulps = ACTIVATIONS[name].fp32_error(gate, factor, argument) / 2.0**-23
    assert ulps[0] > ulps[1] > ulps[3]
    assert ulps[2] < 12
    assert ulps.max() < 300

"""An operator that is declared here, clamped, interleaved, with a contract that rounds every operation, is proved like any."""

import math
from functools import partial

import mpmath
import pytest
import torch

from reference.arithmetic import evaluate, evaluate_f64
from reference.exact import terms as terms_module
from reference.exact.activations import (
    ACTIVATIONS,
    Activation,
    enclose,
    sigmoid_factor,
    sigmoid_fp32_error,
    sigmoid_to_any_precision,
)
from reference.exact.attainable import attainable
from reference.exact.oracle import correctly_rounded
from reference.exact.terms import GatedTerms, NormTerms, terms
from reference.operators import OPERATORS, Operator, Role, Tensor
from reference.operators.contract import Contract, contract_of, corners
from reference.operators.declaration import ACTIVATION, EVERY_OPERATION, FP32_MAX, RSTD, Parameter, Switch, codes_of
from reference.operators.gated import act_and_mul, silu
from reference.operators.norms import rmsnorm
from reference.providers.recorded import StoredValues, TorchFunctions, record
from reference.rounding import round_from_f64

from .rows import DTYPES

BF16 = torch.bfloat16


def scaled_silu(A, gate, alpha):
    """gate * sigmoid(alpha * gate)."""
    return A.mul(gate, A.sigmoid(A.mul(gate, alpha)))


def limited(A, gate, up, c):
    """What gpt-oss computes of gate and up."""
    if c.rounds_every_operation:
        A = A.after_every_operation()
    limit = c.value("limit")
    gate, up = A.minimum(gate, limit), A.clamp(up, -limit, limit)
    activated = A.activate(scaled_silu, gate, c.value("alpha"))
    if c.rounds_activation:
        activated = A.load(A.store(activated))
    return (A.store(A.mul(activated, A.add(up, 1.0))),)


LIMITED = Operator(
    "limited_silu_and_mul",
    (Tensor("input", Role.PAIRS),),
    ("output",),
    limited,
    (EVERY_OPERATION,),
    "scaled_silu",
    parameters=(Parameter("alpha", 1.702, 2.0**-126, FP32_MAX, other=1.0), Parameter("limit", 7.0, 0.0, FP32_MAX, other=2.0)),
    switches=(Switch("gate", "limit"), Switch("up", "limit", -1.0), Switch("up", "limit")),
)
SCALED_SILU = Activation(
    lambda gate, alpha: sigmoid_factor(alpha * gate),  # 24-bit significands: exact in float64
    partial(sigmoid_fp32_error, 1.0),
    None,
    lambda gate, alpha: sigmoid_to_any_precision(mpmath.mpf(alpha) * gate),
)
CODES = codes_of((EVERY_OPERATION,))
PAIRED = Operator("paired", (Tensor("input", Role.PAIRS),), ("output",), partial(act_and_mul, silu), (ACTIVATION,), "silu")


@pytest.fixture(autouse=True)
def analysis(monkeypatch):
    monkeypatch.setattr(terms_module, "ACTIVATIONS", {**ACTIVATIONS, "scaled_silu": SCALED_SILU})


def rows(dtype, scale=1.0, seed=0, shape=(4, 128)):
    generator = torch.Generator().manual_seed(seed)
    gate, up = (scale * torch.randn(*shape, generator=generator) for _ in range(2))
    return LIMITED.assemble({"gate": gate.to(dtype), "up": up.to(dtype)})


def eager(input, alpha, limit):
    """transformers 5.24.0, models/gpt_oss/modeling_gpt_oss.py, GptOssExperts._apply_gate."""
    gate, up = input[..., ::2], input[..., 1::2]
    gate = gate.clamp(min=None, max=limit)
    up = up.clamp(min=-limit, max=limit)
    glu = gate * torch.sigmoid(gate * alpha)
    return (up + 1) * glu


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("code", CODES)
def test_plain_fp32_and_the_correctly_rounded_value_are_attainable_at_any_scale(code, dtype):
    for scale in (1e-30, 1e-6, 1.0, 4.0, 1e3):
        inputs, contract = rows(dtype, scale), contract_of(LIMITED, code)
        ends = attainable(LIMITED, inputs, contract)
        assert ends.judged["output"].all()
        for outputs in (evaluate(LIMITED, inputs, contract), correctly_rounded(LIMITED, inputs, contract).outputs):
            assert ends.contains(outputs["output"]).all(), scale


@pytest.mark.parametrize("dtype", [torch.float16, BF16])
def test_eager_torch_rounds_every_operation(dtype):
    inputs = rows(dtype, scale=4.0, shape=(16, 512))
    output = eager(inputs["input"], 1.702, 7.0)
    inside = {code: attainable(LIMITED, inputs, contract_of(LIMITED, code)).contains(output) for code in CODES}
    assert inside["S2"].all()
    assert inside["S1"].double().mean() < 0.9
    assert inside["S0"].double().mean() < 0.8


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_what_providers_run_follows_from_the_formula(dtype):
    inputs = rows(dtype, scale=4.0)
    one_by_one = record(LIMITED, StoredValues, contract_of(LIMITED, "S2"))
    assert torch.equal(one_by_one(inputs["input"], 1.702, 3.0), eager(inputs["input"], 1.702, 3.0))
    in_fp32 = record(LIMITED, TorchFunctions, contract_of(LIMITED, "S0"))(inputs["input"], 1.702, 3.0)
    assert attainable(LIMITED, inputs, contract_of(LIMITED, "S0", limit=3.0)).contains(in_fp32).all()


@pytest.mark.parametrize("code", CODES)
def test_nearly_every_16_bit_element_has_one_attainable_value(code):
    ends = attainable(LIMITED, rows(BF16, scale=4.0, shape=(16, 512)), contract_of(LIMITED, code))
    assert (ends.lowest() != ends.highest()).double().mean() < 4e-3


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("code", CODES)
def test_the_oracle_agrees_with_many_digits(code, dtype):
    inputs, contract = rows(dtype, scale=4.0, shape=(2, 64)), contract_of(LIMITED, code).in_fp32()
    alpha, limit = contract.value("alpha"), contract.value("limit")
    gate = torch.clamp(inputs["input"][..., ::2].float(), max=limit)
    up = torch.clamp(inputs["input"][..., 1::2].float(), -limit, limit) + 1.0
    rounds = dtype is not torch.float32
    if code == "S2" and rounds:
        up = up.to(dtype).float()
    expected = []
    with mpmath.workprec(400):
        for g, u in zip(gate.flatten().tolist(), up.flatten().tolist(), strict=True):
            argument = mpmath.mpf(alpha) * g
            if code == "S2" and rounds:
                argument = mpmath.mpf((torch.tensor(g) * alpha).to(dtype).item())
            value = 1 / (1 + mpmath.exp(-argument))
            if code == "S2" and rounds:
                value = mpmath.mpf(nearest(value, dtype))
            value *= g
            if code in ("S1", "S2") and rounds:
                value = mpmath.mpf(nearest(value, dtype))
            expected.append(nearest(value * u, dtype))
    found = correctly_rounded(LIMITED, inputs, contract_of(LIMITED, code))
    assert found.outputs["output"].flatten().tolist() == expected
    again = round_from_f64(evaluate_f64(LIMITED, inputs, contract_of(LIMITED, code))["output"], dtype)
    assert torch.equal(again, found.outputs["output"])


def nearest(value, dtype):
    """`value` rounded to `dtype`: float64 holds it to 53 bits, which these samples leave no tie in."""
    return round_from_f64(torch.tensor([float(value)], dtype=torch.float64), dtype).item()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_both_sides_of_a_clamp_meet_and_a_nan_goes_through(dtype, code):
    contract = contract_of(LIMITED, code)
    beyond = torch.nextafter(torch.tensor(7.0).to(dtype), torch.tensor(math.inf).to(dtype)).item()
    gate = torch.tensor([7.0, beyond, math.inf, 1.0, 1.0, 1.0, math.nan, 1.0, -math.inf])
    up = torch.tensor([1.0, 1.0, 1.0, 7.0, beyond, math.inf, 1.0, math.nan, 1.0])
    inputs = LIMITED.assemble({"gate": gate.to(dtype), "up": up.to(dtype)})
    for output in (evaluate(LIMITED, inputs, contract)["output"], correctly_rounded(LIMITED, inputs, contract).outputs["output"]):
        assert output[0] == output[1] == output[2]
        assert output[3] == output[4] == output[5]
        assert output[6:].isnan().all()
    assert attainable(LIMITED, inputs, contract).judged["output"].tolist() == [True] * 6 + [False] * 3


def test_a_factor_of_one_half_is_enclosed_at_an_argument_of_zero():
    zero = torch.zeros(1, dtype=torch.float64)
    lowest, highest = enclose(*sigmoid_factor(zero), torch.ones_like(zero))
    assert (lowest.item(), highest.item()) == (0.5, 0.5)


def test_an_argument_that_underflows_has_a_factor_of_one_half():
    """alpha * gate is 0 in fp16 where gate is not: the rounded sigmoid is 1/2 then, and certain."""
    inputs = {"input": torch.tensor([[2.0**-24, 1.0]], dtype=torch.float16)}
    contract = contract_of(LIMITED, "S2", alpha=2.0**-10)
    found = terms(LIMITED, inputs, contract)
    assert found.argument.item() == 0 != found.gate.item()
    result = correctly_rounded(LIMITED, inputs, contract)
    assert result.undecided == 0
    assert attainable(LIMITED, inputs, contract).contains(result.outputs["output"]).all()


@pytest.mark.parametrize("code", ["S0", "S1"])
def test_interleaved_pairs_give_what_halves_give(code):
    halves = OPERATORS["silu_and_mul"]
    values = LIMITED.split(rows(BF16, shape=(2, 3, 32)))
    here, there = PAIRED.assemble(values), halves.assemble(values)
    contract = Contract(code)
    for function in (
        evaluate,
        evaluate_f64,
        lambda *call: correctly_rounded(*call).outputs,
        lambda *call: {"output": attainable(*call).lowest()},
    ):
        assert torch.equal(function(PAIRED, here, contract)["output"], function(halves, there, contract)["output"])


def test_the_terms_type_follows_from_the_formula_not_from_a_name():
    mine = Operator(
        "mine",
        (Tensor("rows", Role.ROWS), Tensor("scale", Role.VECTOR)),
        ("output",),
        rmsnorm,
        OPERATORS["rmsnorm"].roundings,
        RSTD,
        parameters=OPERATORS["rmsnorm"].parameters,
    )
    inputs = {"rows": torch.randn(2, 8).to(BF16), "scale": torch.randn(8)}
    assert isinstance(terms(LIMITED, rows(BF16), contract_of(LIMITED)), GatedTerms)
    assert isinstance(terms(mine, inputs, Contract("W1")), NormTerms)
    for contract in corners(mine):
        assert attainable(mine, inputs, contract).contains(evaluate(mine, inputs, contract)["output"]).all()

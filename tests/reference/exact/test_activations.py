"""The activations in every named fp32 form over dense gates: each is attainable, and what only looks like one is not."""

import math

import numpy as np
import pytest
import torch
from numba import njit

from difftest.verdict import judge
from reference.arithmetic import evaluate
from reference.contracts import contract
from reference.exact import bounds
from reference.exact.activations import ACTIVATIONS, SATURATED
from reference.exact.attainable import attainable

from .rows import DTYPES

HALF = np.float32(0.5)


def in_float64(function):
    """Correctly rounded, but for one in 2^29."""
    return lambda x: function(x.double()).float()


def by_two_ulp(function):
    """A library function at the ends of CUDA's documented error of 2 ulp, either way, but where it rounds to -1 or 1."""

    def off(x):
        right = function(x.double()).float()
        pattern = right.view(torch.int32) + 2 * (2 * (torch.arange(len(x)) % 2) - 1).int()
        return torch.where(right.abs() < 1, pattern.view(torch.float32).clamp(-1.0, 1.0), right)

    return off


@njit
def _numba_erf(x):
    return np.array([np.float32(math.erf(each)) for each in x], dtype=np.float32)


@njit
def _numba_tanh(x):
    return np.array([np.float32(math.tanh(each)) for each in x], dtype=np.float32)


def of_numba(function):
    return lambda x: torch.from_numpy(function(x.numpy()))


def tanh_of_one_exp(x):
    """As torch's inductor writes it for a CPU."""
    return 2 / (1 + torch.exp(-2 * x)) - 1


def tanh_of_two_exp(x):
    e = torch.exp(2 * x)
    return torch.where(x > 40, 1.0, (e - 1) / (e + 1))


ERFS = (torch.erf, in_float64(torch.erf), by_two_ulp(torch.erf), of_numba(_numba_erf))
TANHS = (
    torch.tanh,
    in_float64(torch.tanh),
    by_two_ulp(torch.tanh),
    of_numba(_numba_tanh),
    tanh_of_one_exp,
    tanh_of_two_exp,
)


def products(gate, half_of_one_plus):
    """g/2 (1 + f), g (0.5 + 0.5 f) and fma(g/2, f, g/2)."""
    half = 0.5 * gate
    yield half * (1 + half_of_one_plus)
    yield gate * (0.5 * (1 + half_of_one_plus))
    yield (half.double() * half_of_one_plus.double() + half.double()).float()


def gelu_arguments(gate):
    cubic = gate * gate * gate
    yield math.sqrt(2 / math.pi) * (gate + 0.044715 * cubic)
    yield gate * (0.7978845608028654 * (1 + 0.044715 * (gate * gate)))


def forms(op, gate):
    """Every named form of the activation, fp32."""
    if op == "gelu_and_mul":
        for erf in ERFS:
            yield from products(gate, erf(gate * math.sqrt(0.5)))
        yield 0.5 * gate * torch.special.erfc(gate * -math.sqrt(0.5))
        yield torch.nn.functional.gelu(gate)
        return
    arguments = list(gelu_arguments(gate)) if op == "gelu_tanh_and_mul" else [0.5 * gate]
    for argument in arguments:
        for tanh in TANHS:
            yield from products(gate, tanh(argument))
        yield gate / (1 + torch.exp(-2 * argument))
        yield gate * torch.sigmoid(2 * argument)


def dense_gates():
    """10 000 gates where the factor goes from 1 to nothing, 3 000 beyond; and beside 0."""
    near = torch.linspace(-20, 9, 10_000, dtype=torch.float64)
    return torch.cat((near, torch.linspace(-110, 40, 3_000, dtype=torch.float64), near[::10].sign() * 2.0 ** -near[::10].abs()))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", ["silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"])
def test_every_named_form_is_attainable_over_dense_gates(op, dtype):
    gate = dense_gates().to(dtype)
    up = torch.linspace(-3, 3, len(gate)).to(dtype)
    inputs, case = {"input": torch.stack((gate, up), -1)}, contract(op)
    ends = attainable(op, inputs, case)
    count = 0
    for activated in forms(op, gate.float()):
        output = (activated * up.float()).to(dtype)[:, None]
        wrong = ~ends.contains(output)
        assert not wrong.any(), (count, gate[wrong[:, 0]][:5], output[wrong][:5])
        assert judge(op, inputs, {"output": output}, case).conforms, count
        count += 1
    assert count > 10


@pytest.mark.parametrize(("op", "functions"), [("gelu_and_mul", ERFS), ("gelu_tanh_and_mul", TANHS), ("silu_and_mul", TANHS)])
def test_every_named_form_gives_zero_below_the_saturated_factor_and_some_do_just_above(op, functions):
    """The derivation of SATURATED: erf and tanh are -1 there, each of them."""
    gate = torch.linspace(-25, -4, 200_000, dtype=torch.float64)
    _, factor, _ = ACTIVATIONS[op.removesuffix("_and_mul")].factor(gate)
    argument = next(gelu_arguments(gate)) if op == "gelu_tanh_and_mul" else gate * (0.5 if op == "silu_and_mul" else 0.5**0.5)
    last = [factor[function(argument.float()) > -1].min().item() for function in functions]
    assert min(last) > SATURATED
    assert min(last) < 2.5 * SATURATED


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_the_allowance_for_cancellation_ends_with_the_forms(name):
    """A few times 2^-24 of the gate, below -4 at most two; and nothing below the saturated factor but zero itself."""
    analysis, gate = ACTIVATIONS[name], torch.linspace(-60, 10, 100_000, dtype=torch.float64)
    argument, factor, _ = analysis.factor(gate)
    allowance = analysis.cancelling_error(factor, argument) / bounds.U32
    assert allowance.max() <= {"silu": 1.25, "gelu": 6.0, "gelu_tanh": 2.85}[name]
    assert allowance[gate < -4].max() < 2.0
    case, beyond = contract(f"{name}_and_mul"), gate[factor < SATURATED][-1:].float()
    inputs = {"input": torch.stack((beyond, torch.ones_like(beyond)), -1)}
    right = evaluate(f"{name}_and_mul", inputs, case)["output"]
    for share, attained in ((0.0, True), (0.5, False), (1.0, True), (2.0, False)):
        assert attainable(f"{name}_and_mul", inputs, case).contains(share * right).all() == attained


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", ["gelu_and_mul", "gelu_tanh_and_mul"])
@pytest.mark.parametrize(
    "tail",
    [lambda gate: gate * 2.0**-24, lambda gate: torch.full_like(gate, -4.1e-8), lambda gate: gate * 2.0**-26],
    ids=["gate * 2^-24", "the tail of silu at -20", "gate * 2^-26"],
)
def test_a_planted_tail_is_found(op, dtype, tail):
    gate = torch.linspace(-40, -6, 500).to(dtype)
    for up in (1.0, 1e4):
        inputs = {"input": torch.stack((gate, torch.full_like(gate, up)), -1)}
        output = (tail(gate.float()) * up).to(dtype)[:, None]
        if not output.any():
            continue  # fp16 has no such number
        verdict = judge(op, inputs, {"output": output}, contract(op))
        assert verdict.statistics["unattainable"] > 400
        assert not verdict.conforms


def test_the_products_may_be_taken_in_any_order_among_subnormals():
    """(gate * up) * sigmoid(gate) rounds a subnormal product first, and is one step off."""
    gate, up = torch.linspace(0.5, 8, 2000), torch.linspace(1e-39, 9e-38, 2000)
    inputs, case = {"input": torch.stack((gate, up), -1)}, contract("silu_and_mul")
    late = (gate * up * torch.sigmoid(gate))[:, None]
    assert (late != evaluate("silu_and_mul", inputs, case)["output"]).any()
    assert judge("silu_and_mul", inputs, {"output": late}, case).conforms
    four_steps = (late.view(torch.int32) + 4).view(torch.float32)
    assert not judge("silu_and_mul", inputs, {"output": four_steps}, case).conforms

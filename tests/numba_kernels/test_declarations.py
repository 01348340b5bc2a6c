"""What follows from an operator's declaration, shown on a made-up one: checks, codes, the launch, PyTorch's schemas."""

import inspect

import numpy as np
import pytest
import torch

import numba_kernels
from numba_kernels import declarations, torch_ops
from numba_kernels.declarations import OPERATORS, Flag, Gated, Number, Role, Rounding
from numba_kernels.runtime import calls


def clipped_and_mul(input, out=None, *, slope=1.5, limit=7.0, interleaved=True, contract="S0", enable_pdl=None):
    """Two numbers, a flag, gate and up that alternate, three choices of rounding."""


DECLARED = {
    "tensors": {"input": Role.PAIRS},
    "parameters": (Number("slope"), Number("limit", least=0.0), Flag("interleaved")),
    "roundings": (Rounding("S", 3),),
    "launch": Gated("clipped"),
}


@pytest.fixture
def clipped(monkeypatch):
    """The made-up operator, and the checked calls that it would launch."""
    launched = []
    monkeypatch.setattr(declarations, "OPERATORS", {})
    monkeypatch.setattr(calls, "_launch", lambda operator, call, *_: launched.append(call))
    return calls.operator(**DECLARED)(clipped_and_mul), launched


def test_numbers_reach_the_launch_as_fp32_bits_and_flags_and_rounding_as_choices(clipped):
    function, launched = clipped
    x = np.ones((2, 8), np.float32)
    assert function(x).shape == (2, 4)
    function(x, slope=2, limit=0.1, interleaved=False, contract="S2")
    bits = [int(np.float32(value).view(np.uint32)) for value in (1.5, 7.0, 2.0, 0.1)]
    first, second = (Gated("clipped").plan(call) for call in launched)
    assert first.parameters == tuple(bits[:2])
    assert second.parameters == tuple(bits[2:])
    assert (first.operation.interleaved, first.operation.rounding) == (True, "S0")
    assert (second.operation.interleaved, second.operation.rounding) == (False, "S2")
    assert (first.rows, first.width, first.x_stride, first.out_stride) == (2, 4, 8, 4)


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (ValueError, "limit: -1.0; a finite fp32 number of at least 0 is needed", {"limit": -1.0}),
        (ValueError, "slope: inf; a finite fp32 number is needed", {"slope": float("inf")}),
        (ValueError, "slope: -1e\\+39; a finite fp32 number is needed", {"slope": -1e39}),
        (TypeError, "slope: '1' of type str; a real number", {"slope": "1"}),
        (TypeError, "interleaved: 1; True or False", {"interleaved": 1}),
        (ValueError, "contract: 'S3'; S0, S1, S2 are supported", {"contract": "S3"}),
    ],
)
def test_parameters_are_checked_before_the_launch(error, words, options, clipped):
    function, launched = clipped
    with pytest.raises(error, match=words):
        function(np.ones((2, 8), np.float32), **options)
    assert not launched


def test_the_options_are_keyword_only_and_the_docstring_is_the_functions(clipped):
    function, _ = clipped
    assert inspect.signature(function) == inspect.signature(clipped_and_mul)
    assert function.__doc__ == clipped_and_mul.__doc__
    with pytest.raises(TypeError, match="positional"):
        function(np.ones((2, 8), np.float32), None, 1.0)


@pytest.mark.parametrize("change", [{"parameters": ()}, {"tensors": {"gate": Role.PAIRS}}, {"parameters": (Number("width"),)}])
def test_a_declaration_that_does_not_fit_the_signature_is_refused(change, monkeypatch):
    monkeypatch.setattr(declarations, "OPERATORS", {})
    with pytest.raises(TypeError, match="clipped_and_mul: arguments"):
        calls.operator(**{**DECLARED, **change})(clipped_and_mul)


def test_a_made_up_operator_is_traced_like_the_others(clipped, monkeypatch):
    function, _ = clipped
    (operator,) = declarations.OPERATORS.values()
    monkeypatch.setitem(torch_ops.dispatch.TRACED, operator.name, None)
    torch_ops.define(operator)
    ops = torch.ops.numba_kernels
    assert str(ops.clipped_and_mul.default._schema) == (
        "numba_kernels::clipped_and_mul(Tensor input, float slope=1.5, float limit=7., bool interleaved=True, "
        'str contract="S0", bool? enable_pdl=None) -> Tensor'
    )
    x = torch.ones(2, 8, device="meta")
    assert ops.clipped_and_mul(x, 1.0, 2.0, False).shape == (2, 4)
    assert ops.clipped_and_mul_out(x[:, :4].clone(), x) is None
    compiled = torch.compile(lambda x: function(x, limit=3.0), fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(2, 8)).shape == (2, 4)


NORM = "Tensor weight, float eps=9.9999999999999995e-07"
PDL = "bool? enable_pdl=None"
SCHEMAS = {
    "fused_add_rmsnorm": f'(Tensor(a!) input, Tensor(b!) residual, {NORM}, str contract="R0W0", {PDL}) -> ()',
    "add_rmsnorm": f'(Tensor input, Tensor residual, {NORM}, str contract="R0W0", {PDL}) -> (Tensor, Tensor)',
    "rmsnorm": f'(Tensor input, {NORM}, str contract="W0", {PDL}) -> Tensor',
    "rmsnorm_out": f'(Tensor(a!) out, Tensor input, {NORM}, str contract="W0", {PDL}) -> ()',
    "silu_and_mul": f'(Tensor input, str contract="S0", {PDL}) -> Tensor',
    "silu_and_mul_out": f'(Tensor(a!) out, Tensor input, str contract="S0", {PDL}) -> ()',
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_stay_as_they_were_published(name):
    assert str(getattr(torch.ops.numba_kernels, name).default._schema) == f"numba_kernels::{name}{SCHEMAS[name]}"


def test_the_operators_contract_codes():
    codes = {name: each.codes for name, each in OPERATORS.items()}
    assert codes["fused_add_rmsnorm"] == codes["gemma_fused_add_rmsnorm"] == ("R0W0", "R1W0", "R0W1", "R1W1")
    assert codes["rmsnorm"] == codes["gemma_rmsnorm"] == ("W0", "W1")
    assert codes["silu_and_mul"] == codes["gelu_and_mul"] == codes["gelu_tanh_and_mul"] == ("S0", "S1")


def test_the_package_offers_every_operator():
    assert list(OPERATORS) == numba_kernels.__all__
    for name, each in OPERATORS.items():
        assert inspect.signature(getattr(numba_kernels, name)) == each.signature

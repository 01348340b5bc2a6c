"""What torch-compile compiles and eager runs: the formula's torch operations and nothing else, in a user's order."""

import inspect

import pytest
import torch
from torch import fx

from reference.arithmetic import evaluate
from reference.exact.attainable import attainable
from reference.operators import OPERATORS
from reference.operators.contract import contract_of
from reference.providers.recorded import StoredValues, TorchFunctions, record

ADD_NORM = ["float", "float", "add", "square", "mean", "add", "rsqrt", "mul", "float", "add", "mul", "to", "to"]
GATED = ["float", "chunk", "mul", "to"]


def operations(function):
    """The names of the recorded operations, short of activations and access to attributes and items."""
    module = function.__self__
    assert isinstance(module, fx.GraphModule)
    named = [getattr(n.target, "__name__", n.target) for n in module.graph.nodes if n.op in ("call_function", "call_method")]
    return [name for name in named if name not in ("getattr", "getitem", "silu", "gelu")]


def inputs_of(op, dtype):
    generator = torch.Generator().manual_seed(2)
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in op.shapes((4,), 32).items()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS)
def test_a_recorded_formula_is_an_fp32_evaluation_of_the_first_contract(op, dtype):
    contract = contract_of(op)
    inputs = inputs_of(op, dtype)
    returned = record(op, TorchFunctions, contract)(*op.arguments(inputs, contract))
    outputs = dict(zip(op.outputs, returned if len(op.outputs) > 1 else (returned,), strict=True))
    ends = attainable(op, inputs, contract)
    assert all(ends.contains(output, name).all() for name, output in outputs.items())
    assert all(output.dtype is dtype for output in outputs.values())


def test_operations_stand_where_a_user_would_write_them():
    for name, expected in (("gemma_fused_add_rmsnorm", ADD_NORM), ("rmsnorm", ["float", *ADD_NORM[3:-1]])):
        assert operations(record(OPERATORS[name], TorchFunctions, contract_of(name))) == expected
    assert operations(record(OPERATORS["silu_and_mul"], TorchFunctions, contract_of("silu_and_mul"))) == GATED


@pytest.mark.parametrize("name", ["silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"])
def test_eager_values_stay_in_storage(name):
    op = OPERATORS[name]
    function = record(op, StoredValues, contract_of(op, "S1"))
    assert operations(function) == ["chunk", "mul"]
    inputs = inputs_of(op, torch.bfloat16)
    assert torch.equal(function(inputs["input"]), evaluate(op, inputs, contract_of(op, "S1"))["output"])


def test_a_recorded_function_has_the_operators_parameters_with_their_defaults():
    op = OPERATORS["rmsnorm"]
    parameters = inspect.signature(record(op, TorchFunctions, contract_of(op, eps=1e-3))).parameters
    assert list(parameters) == ["input", "weight", "eps"]
    assert parameters["eps"].default == 1e-3

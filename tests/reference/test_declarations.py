"""What follows from a declaration: codes, names, shapes, the order of a call, gate and up in one tensor."""

import pickle
from functools import partial

import pytest
import torch

from reference.contracts import Contract, contract, corners
from reference.exact.activations import ACTIVATIONS
from reference.exact.terms import terms
from reference.operators import OPERATORS, Operator, Role, Tensor
from reference.operators.contract import check_contract, contract_of
from reference.operators.declaration import ACTIVATION, EVERY_OPERATION, FP32_MAX, Parameter, Switch
from reference.operators.gated import act_and_mul, silu

PAIRED = Operator(
    "paired_silu_and_mul", (Tensor("input", Role.PAIRS),), ("output",), partial(act_and_mul, silu), (ACTIVATION,), "silu"
)
LIMITED = Operator(
    "limited",
    (Tensor("input", Role.PAIRS),),
    ("output",),
    partial(act_and_mul, silu),
    (EVERY_OPERATION,),
    "silu",
    parameters=(Parameter("alpha", 1.702, 2.0**-126, FP32_MAX, other=1.0), Parameter("limit", 7.0, 0.0, FP32_MAX, other=2.0)),
    switches=(Switch("gate", "limit"), Switch("up", "limit", -1.0), Switch("up", "limit")),
)


@pytest.mark.parametrize(
    ("op", "codes", "inputs", "outputs", "mutated", "rows", "roles"),
    [
        (
            "fused_add_rmsnorm",
            ("R0W0", "R1W0", "R0W1", "R1W1"),
            ("input", "residual", "weight"),
            ("output", "residual"),
            ("input", "residual"),
            ("input", "residual"),
            ("input", "residual"),
        ),
        ("rmsnorm", ("W0", "W1"), ("input", "weight"), ("output",), (), ("input",), ("input",)),
        ("silu_and_mul", ("S0", "S1"), ("input",), ("output",), (), ("input",), ("gate", "up")),
        (LIMITED, ("S0", "S1", "S2"), ("input",), ("output",), (), ("input",), ("gate", "up")),
    ],
)
def test_names_and_codes_follow_from_tensors_and_roundings(op, codes, inputs, outputs, mutated, rows, roles):
    op = OPERATORS.get(op, op)
    assert (op.codes, op.inputs, op.outputs, op.mutated, op.rows, op.roles) == (codes, inputs, outputs, mutated, rows, roles)


def test_an_in_place_operators_output_lands_in_its_input():
    assert OPERATORS["gemma_fused_add_rmsnorm"].lands_in == {"output": "input", "residual": "residual"}
    assert OPERATORS["rmsnorm"].lands_in == {}


@pytest.mark.parametrize("op", [*OPERATORS.values(), PAIRED], ids=lambda op: op.name)
@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
def test_shapes_have_the_width_of_an_output_row(op, lead):
    tensors = {name: torch.zeros(shape) for name, shape in op.shapes(lead, 8).items()}
    assert op.width_of(tensors) == 8
    assert op.output_shape(tensors) == torch.Size((*lead, 8))
    assert tensors["input"].shape[-1] == op.row_length("input", 8) == (8 if "weight" in tensors else 16)
    assert op.row_length("output", 8) == 8
    assert all(tensors[name].shape == (8,) for name in op.vectors)


@pytest.mark.parametrize("op", [OPERATORS["silu_and_mul"], PAIRED], ids=lambda op: op.name)
def test_gate_and_up_are_put_together_and_taken_apart(op):
    gate, up = torch.arange(6.0).view(2, 3), -torch.arange(6.0).view(2, 3)
    tensors = op.assemble({"gate": gate, "up": up})
    apart = op.split(tensors)
    assert torch.equal(apart["gate"], gate)
    assert torch.equal(apart["up"], up)
    assert apart["gate"].untyped_storage().data_ptr() == tensors["input"].untyped_storage().data_ptr()
    assert tensors["input"][1].tolist() == ([3, -3, 4, -4, 5, -5] if op is PAIRED else [3, 4, 5, -3, -4, -5])


def test_a_row_of_odd_length_holds_no_gate_and_up():
    with pytest.raises(ValueError, match="9 is odd"):
        OPERATORS["silu_and_mul"].width_of({"input": torch.zeros(2, 9)})


def test_a_call_passes_tensors_and_then_parameters():
    tensors = {"weight": 3, "residual": 2, "input": 1}
    assert OPERATORS["fused_add_rmsnorm"].arguments(tensors, Contract("R0W0", 1e-5)) == (1, 2, 3, 1e-5)
    assert OPERATORS["silu_and_mul"].arguments({"input": 1}, Contract("S0")) == (1,)
    assert LIMITED.arguments({"input": 1}, contract_of(LIMITED, limit=3.0)) == (1, 1.702, 3.0)


def test_a_formula_switches_where_its_parameters_say():
    assert LIMITED.switch_values(contract_of(LIMITED, limit=3.0)) == {"gate": (3.0,), "up": (-3.0, 3.0)}
    assert OPERATORS["silu_and_mul"].switch_values(contract("silu_and_mul")) == {}


def test_a_contract_holds_the_parameters_that_its_operator_declares():
    assert contract_of(LIMITED, "S2").parameters == (("alpha", 1.702), ("limit", 7.0))
    assert str(contract_of(LIMITED, "S2", limit=3.0)) == "S2 (alpha 1.702, limit 3)"
    assert contract_of(LIMITED).in_fp32().value("alpha") == torch.tensor(1.702).item()
    for wrong in (Contract("S0"), contract_of(LIMITED, "S1", limit=1.0)):
        with pytest.raises(ValueError, match="parameters"):
            check_contract(LIMITED if wrong.code == "S0" else "silu_and_mul", wrong)
    with pytest.raises(ValueError, match="alpha must lie in"):
        contract_of(LIMITED, alpha=0.0)


@pytest.mark.parametrize(
    "made", [*corners("gemma_rmsnorm", eps=1e-5), *corners(LIMITED, limit=3.0), Contract("W1", 0.0, 1.0, False)]
)
def test_a_contract_survives_json(made):
    assert Contract.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("record", "why"),
    [({}, "code"), ({"code": "R9"}, "known: R0W0"), ({"code": "W0", "eps": -1}, "eps"), ({"code": "W0", "layout": "x"}, "float")],
)
def test_a_record_that_is_no_contract_is_refused(record, why):
    with pytest.raises(ValueError, match=why):
        Contract.from_json(record)


@pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS)
def test_an_operator_is_made_of_what_its_formula_asks_for(op):
    tensors = {name: torch.ones(shape) for name, shape in op.shapes((2,), 4).items()}
    found = terms(op, tensors, contract(op))
    assert getattr(found, "activation", None) == op.activation
    assert op.activation is None or op.activation in ACTIVATIONS


@pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS)
def test_split_forms_read_every_input_and_write_every_output_under_a_code_of_the_operator(op):
    for form in op.split_forms:
        read = {name for reads, _ in form.kernels for name in reads}
        written = {name for _, writes in form.kernels for name in writes}
        assert set(op.roles) | set(op.vectors) <= read
        assert set(op.outputs) <= written
        assert form.code in op.codes
        assert read - written <= set(op.roles) | set(op.vectors), "what a kernel reads is an input or was written before"


def test_an_operator_goes_through_a_pickle():
    for op in OPERATORS.values():
        assert pickle.loads(pickle.dumps(op)) == op

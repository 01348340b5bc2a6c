"""Trivial mutants follow from the declaration: what each returns, by hand."""

import torch

from reference.contracts import contract
from reference.operators import OPERATORS
from reference.trivial import trivial_mutants


def test_a_norm_that_skips_the_work():
    op = OPERATORS["fused_add_rmsnorm"]
    inputs = {"input": torch.tensor([[1.0, 2.0]]), "residual": torch.tensor([[3.0, -1.0]]), "weight": torch.tensor([2.0, 0.5])}
    found = trivial_mutants(op, inputs, contract(op, "R1W1", eps=0.25))
    assert list(found) == ["returns zeros", "returns its input", "leaves the mean square out"]
    assert {name: t.tolist() for name, t in found["returns zeros"].items()} == {"output": [[0, 0]], "residual": [[0, 0]]}
    assert found["returns its input"] == {"output": inputs["input"], "residual": inputs["residual"]}
    skipped = {name: t.tolist() for name, t in found["leaves the mean square out"].items()}
    assert skipped == {"output": [[16.0, 1.0]], "residual": [[4.0, 1.0]]}  # rsqrt(0.25) is 2


def test_a_gated_operator_that_skips_the_work():
    op = OPERATORS["gelu_and_mul"]
    inputs = {"input": torch.tensor([[1.0, 2.0, 3.0, -4.0]], dtype=torch.bfloat16)}
    found = trivial_mutants(op, inputs, contract(op))
    assert {name: outputs["output"].tolist() for name, outputs in found.items()} == {
        "returns zeros": [[0, 0]],
        "returns the gate": [[1, 2]],
        "leaves the activation out": [[3, -8]],
    }


def test_a_norm_out_of_place_returns_its_input():
    op = OPERATORS["gemma_rmsnorm"]
    inputs = {"input": torch.tensor([[1.0, 2.0]]), "weight": torch.zeros(2)}
    found = trivial_mutants(op, inputs, contract(op, eps=0.25))
    assert found["returns its input"]["output"] is inputs["input"]
    assert found["leaves the mean square out"]["output"].tolist() == [[2.0, 4.0]]

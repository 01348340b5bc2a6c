"""Which trivial mutants a case cannot tell from the right answer. A case that lets one pass is no evidence.

Imports torch, `reference` and `difftest.verdict`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from difftest.verdict.judge import judge
from reference.arithmetic import biased_weight
from reference.contracts import Contract
from reference.operators import Operator

Tensors = Mapping[str, torch.Tensor]


def trivial_mutants(op: Operator, inputs: Tensors, contract: Contract) -> Mapping[str, Tensors]:
    """The outputs of implementations that skip the work: name of what they do -> their outputs."""
    rows = inputs["input"]
    if op.family == "gated":
        gate, up = rows.chunk(2, dim=-1)
        return {
            "returns zeros": {"output": torch.zeros_like(gate)},
            "returns the gate": {"output": gate},
            "leaves the activation out": {"output": (gate.float() * up.float()).to(rows.dtype)},
        }
    total = rows.float() + inputs["residual"].float() if op.family == "add_norm" else rows.float()
    scaled = total * (torch.tensor(contract.eps).rsqrt() * biased_weight(inputs["weight"], contract))
    mutants: dict[str, dict[str, torch.Tensor]] = {
        "returns zeros": {"output": torch.zeros_like(rows)},
        "returns its input": {"output": rows},
        "leaves the mean square out": {"output": scaled.to(rows.dtype)},
    }
    if op.family == "add_norm":
        new_residual = total.to(rows.dtype)
        mutants["returns zeros"]["residual"] = torch.zeros_like(rows)
        mutants["returns its input"]["residual"] = inputs["residual"]
        mutants["leaves the mean square out"]["residual"] = new_residual
    return mutants


def survivors(op: Operator, inputs: Tensors, contract: Contract) -> list[str]:
    """The trivial mutants whose outputs the verdict takes for the contract's own."""
    mutants = trivial_mutants(op, inputs, contract)
    return [name for name, outputs in mutants.items() if judge(op, inputs, outputs, contract).conforms]

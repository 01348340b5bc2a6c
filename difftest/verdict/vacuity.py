"""Which trivial mutants a case cannot tell from the right answer. A case that lets one pass is no evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from difftest.verdict.judge import judge
from reference.arithmetic import Fp32, Value, compute
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import RSTD

Tensors = Mapping[str, torch.Tensor]


class _Lazy(Fp32):
    """fp32 without the work: an activation gives the gate back, a mean square is 0."""

    def mean_square(self, row: Value) -> Value:
        """Nothing: only eps is left under the root."""
        return torch.zeros_like(row[..., :1])

    def activate(self, activation: Callable, gate: Value, *parameters: float) -> Value:
        """The gate."""
        return gate


def trivial_mutants(op: Operator, inputs: Tensors, contract: Contract) -> Mapping[str, Tensors]:
    """The outputs of implementations that skip the work: name of what they do -> their outputs."""
    given = op.split(inputs)
    first = given[op.roles[0]]
    lazy = _Lazy({name: inputs[name].dtype for name in op.inputs}, op.rows[0])
    untouched = {name: given.get(name, first) for name in op.outputs}
    return {
        "returns zeros": {name: torch.zeros_like(first) for name in op.outputs},
        f"returns {'the gate' if op.roles[0] == 'gate' else 'its input'}": untouched,
        f"leaves the {'mean square' if op.made_of == RSTD else 'activation'} out": compute(op, inputs, contract, lazy),
    }


def survivors(op: Operator, inputs: Tensors, contract: Contract) -> list[str]:
    """The trivial mutants whose outputs the verdict takes for the contract's own."""
    mutants = trivial_mutants(op, inputs, contract)
    return [name for name, outputs in mutants.items() if judge(op, inputs, outputs, contract).conforms]

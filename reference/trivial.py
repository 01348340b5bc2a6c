"""Implementations that skip the work, from the declaration: what a case has to tell from the right answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from reference.arithmetic import Fp32, compute
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors


class _NoActivation(Fp32):
    def activate(self, activation: Callable, gate: Any, *parameters: float) -> Any:
        return gate


class _NoMeanSquare(Fp32):
    def mean_square(self, row: Any) -> Any:
        return torch.zeros_like(row[..., :1])


def trivial_mutants(op: Operator, inputs: Tensors, contract: Contract) -> dict[str, dict[str, torch.Tensor]]:
    """The outputs by name of implementations that skip the work: what each does -> its outputs.

    They return zeros; hand back what they were given (an operator that works in place: touch nothing); or compute the
    formula, rounded once at the end, without its activation or without the mean square.
    """
    first = op.roles[0]
    untouched = {output: inputs[tensor] for output, tensor in op.lands_in.items()} or {"output": op.split(inputs)[first]}
    skips, arithmetic = ("activation", _NoActivation) if op.activation else ("mean square", _NoMeanSquare)
    dtypes = {name: inputs[name].dtype for name in op.inputs}
    once = Contract(op.codes[0], contract.eps, contract.weight_bias, contract.bias_in_fp32, contract.parameters)
    zeros = torch.zeros(op.output_shape(inputs), dtype=dtypes[op.rows[0]], device=inputs[op.rows[0]].device)
    return {
        "returns zeros": dict.fromkeys(op.outputs, zeros),
        "returns its input" if first in op.inputs else f"returns the {first}": untouched,
        f"leaves the {skips} out": compute(op, inputs, once, arithmetic(dtypes, op.rows[0])),
    }

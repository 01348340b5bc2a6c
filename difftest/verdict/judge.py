"""Does an output conform to a contract? Not a tolerance: fp32 rounding must be able to explain every bit of it.

The criterion, its statistics and its false-alarm probability are set out in docs/verdict.md; every bound comes from
`reference.exact`. Which judge speaks follows from what the operator is made of, the type of its terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from difftest.verdict import gated, norms
from reference.exact.terms import GatedTerms, NormTerms, terms
from reference.operators import Operator, operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors

JUDGES: Mapping[type, Callable[..., list[str]]] = {NormTerms: norms.judge, GatedTerms: gated.judge}


@dataclass(frozen=True)
class Verdict:
    """`conforms`, or the `reasons` why not, each a sentence; `statistics` holds the measurements behind them.

    Statistics, always: `elements` (judged), `differing` (not the correctly rounded value), `differing_rate`,
    `explained` (the most that fp32 rounding explains), `unattainable`, `classes` (elements compared by class alone),
    `class_mismatches`, `zero_signs` (zeros of the wrong sign), `residual_mismatches`. Norms: `rows`, `rows_unexplained`,
    `rstd_error_mean`, `rstd_error_max` (the least error that explains each row: signed mean, largest magnitude), `rstd_bound`
    (the largest row's), `rstd_bias_bound`, `bias_rows` and `bias_evidence` (the rows that may lean, and the logarithm of the
    likelihood ratio that they do), `order` (of the sum, where only one with a name explains the rows). Gated: `cancelling`
    (elements that only 1 + erf or 1 + tanh in fp32 explains).
    """

    conforms: bool
    reasons: tuple[str, ...]
    statistics: dict[str, Any]


def judge(op: str | Operator, inputs: Tensors, outputs: Mapping[str, torch.Tensor], contract: Contract) -> Verdict:
    """Whether `outputs` (by name, storage dtype, the call's shape) follow `contract` on `inputs` (as before the call).

    Conforms when the new residual is bit-exact, every element is attainable in fp32, one rstd within its fp32 bound
    explains each row, the rows' rstd errors lean to no side, no more elements differ from the correctly rounded value than
    fp32 rounding explains, and zeros have the sign that every form gives them. Elements that a NaN or an Inf reaches are
    compared by class, and are zeros where an Inf makes rstd 0.
    No element at all is no conformity. Nothing is mutated. Raises KeyError for a missing tensor, and as
    `reference.operators.contract.check_contract`.
    """
    op = operator(op)
    statistics: dict[str, Any] = {"elements": 0, "differing": 0, "unattainable": 0, "residual_mismatches": 0}
    shape, dtype = tuple(op.output_shape(inputs)), inputs[op.rows[0]].dtype
    for name in op.outputs:
        found, right = (tuple(outputs[name].shape), outputs[name].dtype), (shape, dtype)
        if found != right:
            return Verdict(False, (f"{name} is {found[1]} {found[0]}, not {right[1]} {right[0]}",), statistics)
    if math.prod(shape) == 0:
        return Verdict(False, ("nothing was compared: the output has no elements",), statistics)
    found_terms = terms(op, inputs, contract, compensated=False)
    reasons = JUDGES[type(found_terms)](found_terms, outputs, contract, statistics)
    return Verdict(not reasons, tuple(reasons), statistics)

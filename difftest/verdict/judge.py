"""Does an output conform to a contract? Not a tolerance: fp32 rounding must be able to explain every bit of it.

The criterion, its statistics and its false-alarm probability are set out in docs/verdict.md; every bound comes from
`reference.bounds`. Imports torch, `reference` and `difftest.verdict.rstd_interval`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from difftest.verdict.rstd_interval import RowEvidence, row_evidence
from reference.arithmetic import Tensors
from reference.attainable import activation_interval, gated_ends
from reference.cells import rounding_cell
from reference.contracts import Contract
from reference.operators import Operator, operator
from reference.precise import GatedTerms, NormTerms, gated_terms, norm_terms
from reference.rounding import round_from_f64

# The mean rstd error over rows is tested where at least this many generic rows have sums of squares of their own: rows
# are the independent units. Beyond 8 standard errors Student's t with 15 degrees of freedom leaves 9e-7, both sides.
DRIFT_ROWS = 16
DRIFT_STANDARD_ERRORS = 8.0

_BIT_VIEWS = {2: torch.int16, 4: torch.int32}


@dataclass(frozen=True)
class Verdict:
    """`conforms`, or the `reasons` why not, each a sentence; `statistics` holds the measurements behind them.

    Statistics, always: `elements` (judged), `differing` (not the correctly rounded value), `differing_rate`,
    `explained` (the most that fp32 rounding explains), `unattainable`, `classes` (elements compared by class alone),
    `class_mismatches`, `residual_mismatches`. Norms: `rows`, `rows_unexplained`, `rstd_error_mean`, `rstd_error_max`
    (the least error that explains each row: signed mean, largest magnitude), `rstd_bound` (the largest row's),
    `rstd_drift_bound`. Gated: `cancelling` (elements that only 1 + erf or 1 + tanh in fp32 explains).
    """

    conforms: bool
    reasons: tuple[str, ...]
    statistics: dict[str, Any]


def judge(op: str | Operator, inputs: Tensors, outputs: Mapping[str, torch.Tensor], contract: Contract) -> Verdict:
    """Whether `outputs` (by name, storage dtype, the call's shape) follow `contract` on `inputs` (as before the call).

    Conforms when the new residual is bit-exact, every element is attainable in fp32, one rstd within its fp32 bound
    explains each row, the rows' rstd errors have no common drift that fp32 lacks, and no more elements differ from the
    correctly rounded value than fp32 rounding explains. Elements that a NaN or an Inf reaches are compared by class.
    No element at all is no conformity. Nothing is mutated. Raises KeyError for a missing tensor, and as
    `reference.contracts.check_contract`.
    """
    op = operator(op)
    statistics: dict[str, Any] = {"elements": 0, "differing": 0, "unattainable": 0, "residual_mismatches": 0}
    width = inputs["input"].shape[-1] // (2 if op.family == "gated" else 1)
    shape = (*inputs["input"].shape[:-1], width)
    for name in op.outputs:
        found, right = (tuple(outputs[name].shape), outputs[name].dtype), (shape, inputs["input"].dtype)
        if found != right:
            return Verdict(False, (f"{name} is {found[1]} {found[0]}, not {right[1]} {right[0]}",), statistics)
    if math.prod(shape) == 0:
        return Verdict(False, ("nothing was compared: the output has no elements",), statistics)
    candidate = outputs["output"].reshape(-1, width)
    if op.family == "gated":
        reasons = _judge_gated(op, inputs, candidate, contract, statistics)
    else:
        terms = norm_terms(op, inputs, contract, compensated=False)
        reasons = _judge_residual(terms, outputs, statistics) if terms.stored_sum is not None else []
        reasons += _judge_norm(terms, candidate, contract, statistics)
    return Verdict(not reasons, tuple(reasons), statistics)


# --- norms ------------------------------------------------------------------------------------------------------------


def _judge_residual(terms: NormTerms, outputs: Mapping[str, torch.Tensor], statistics: dict[str, Any]) -> list[str]:
    """The new residual, bit for bit; any NaN for a NaN."""
    right, found = terms.stored_sum, outputs["residual"]
    assert right is not None
    view = _BIT_VIEWS[right.element_size()]
    wrong = (right.view(view) != found.contiguous().view(view)) & ~(torch.isnan(right) & torch.isnan(found))
    count = statistics["residual_mismatches"] = int(wrong.sum())
    if not count:
        return []
    width = right.shape[-1]
    row, column = divmod(int(wrong.reshape(-1).to(torch.uint8).argmax()), width)
    pair = (t.reshape(-1, width)[row, column].item() for t in (found, right))
    return [
        "residual: {} of {} are not the rounded sum; row {}, column {} is {:.9g}, not {:.9g}".format(
            count, right.numel(), row, column, *pair
        )
    ]


def _judge_norm(terms: NormTerms, candidate: torch.Tensor, contract: Contract, statistics: dict[str, Any]) -> list[str]:
    evidence = row_evidence(terms, candidate)
    expected = terms.hidden * terms.rstd
    if terms.rounds_norm:
        expected = expected.float().to(terms.storage).double()
    by_class = ~evidence.judged & ~(terms.finite & torch.isfinite(terms.weight))
    reasons = _judge_classes(candidate, expected * terms.weight, by_class, statistics) if bool(by_class.any()) else []
    elements = int(evidence.judged.sum())
    statistics |= _counts(evidence.differing, evidence.unattainable, elements)
    statistics.setdefault("class_mismatches", 0)
    statistics.setdefault("classes", 0)

    # Rows: is there one rstd, and is it near enough?
    measured = torch.isfinite(evidence.bound) & (evidence.lowest > -torch.inf)
    apart = measured & (evidence.lowest > evidence.highest)
    off = measured & ~apart & ((evidence.lowest > evidence.bound) | (evidence.highest < -evidence.bound))
    together = measured & ~apart
    errors = evidence.nearest[together]
    statistics |= {
        "rows": int(measured.sum()),
        "rows_unexplained": int((apart | off).sum()),
        "rstd_error_mean": float(errors.mean()) if len(errors) else 0.0,
        "rstd_error_max": float(errors.abs().max()) if len(errors) else 0.0,
        "rstd_bound": float(evidence.bound[measured].max()) if bool(measured.any()) else math.inf,
        "rstd_drift_bound": evidence.drift,
    }
    if bool(off.any()):
        row = int(torch.where(off, evidence.nearest.abs(), 0.0).argmax())
        reasons.append(
            f"{int(off.sum())} of {len(off)} rows: rstd is off; row {row} by {float(evidence.nearest[row]):+.2g}, "
            f"fp32 explains at most {float(evidence.bound[row]):.2g}"
        )
    if bool(apart.any()):
        row = int(torch.where(apart, evidence.lowest - evidence.highest, 0.0).argmax())
        reasons.append(
            f"{int(apart.sum())} of {len(apart)} rows: no single rstd explains the row; in row {row} one element needs "
            f"an error of at least {float(evidence.lowest[row]):+.2g}, another of at most "
            f"{float(evidence.highest[row]):+.2g}"
        )
    if statistics["unattainable"]:
        reasons.append(_worst_element(terms, candidate, evidence, contract, elements))
    if not reasons:
        reasons += _judge_drift(terms, evidence, together, statistics)
    # Which ties lie where is chance: a count exceeds its mean by 5 standard deviations and 5 with probability below 1e-6.
    expected_count = float(evidence.explained.sum())
    statistics["explained"] = min(elements, int(expected_count + 5 * math.sqrt(expected_count) + 5))
    if statistics["differing"] > statistics["explained"] and not reasons:
        reasons.append(
            f"{statistics['differing']} of {elements} elements are not the correctly rounded value; "
            f"fp32 explains at most {statistics['explained']}"
        )
    return reasons


def _judge_drift(terms: NormTerms, evidence: RowEvidence, usable: torch.Tensor, statistics: dict[str, Any]) -> list[str]:
    """Do the rows' rstd errors share a mean that no fp32 kernel has? One row for each distinct sum of squares."""
    rows = torch.nonzero(evidence.generic & usable).squeeze(-1)
    mantissas = torch.frexp(terms.mean_square[rows, 0]).mantissa
    order = torch.argsort(mantissas)
    fresh = torch.ones_like(order, dtype=torch.bool)
    fresh[1:] = mantissas[order][1:] != mantissas[order][:-1]
    errors = evidence.nearest[rows[order[fresh]]]
    count = len(errors)
    statistics["drift_rows"] = count
    if count < DRIFT_ROWS:
        return []
    mean, standard_error = float(errors.mean()), float(errors.std()) / math.sqrt(count)
    excess = abs(mean) - evidence.drift
    if excess <= DRIFT_STANDARD_ERRORS * standard_error:
        return []
    return [
        f"rstd is off by {mean:+.2g} on average over {count} rows (standard error {standard_error:.1g}); "
        f"fp32 explains at most {evidence.drift:.2g} in every row alike"
    ]


def _worst_element(terms: NormTerms, candidate: torch.Tensor, evidence: RowEvidence, contract: Contract, elements: int) -> str:
    inner = terms.hidden * terms.rstd
    if terms.rounds_norm:
        inner = round_from_f64(inner, terms.storage).double()
    truth = inner * terms.weight
    return _describe_worst(candidate, truth, evidence.unattainable, contract, elements)


# --- gated activations ------------------------------------------------------------------------------------------------


def _judge_gated(
    op: Operator, inputs: Tensors, candidate: torch.Tensor, contract: Contract, statistics: dict[str, Any]
) -> list[str]:
    """Each element alone: nothing is shared along a row, so attainability says all, the rate included."""
    name = str(op.activation)
    terms = gated_terms(op, inputs, contract)
    lowest, highest = gated_ends(terms, *activation_interval(name, terms))
    judged = torch.isfinite(terms.gate) & torch.isfinite(terms.up)
    unattainable = judged & ~((candidate >= lowest) & (candidate <= highest))
    activated = terms.gate * terms.factor
    if terms.rounds_activation:
        activated = round_from_f64(activated, terms.storage).double()
    truth = activated * terms.up
    cell_lowest, cell_highest = rounding_cell(candidate)
    differing = judged & ~((truth >= cell_lowest) & (truth <= cell_highest))
    elements = int(judged.sum())
    statistics |= _counts(differing, unattainable, elements)
    statistics["explained"] = int((judged & (lowest != highest)).sum())
    statistics |= {"cancelling": _cancelling(name, terms, candidate, differing & ~unattainable)}
    statistics |= {"classes": 0, "class_mismatches": 0}
    reasons = []
    if bool((~judged).any()):
        # act(-Inf) is -Inf * 0 in one form and 0 in another, and Inf times an activation that may vanish is either.
        settled = (terms.gate != -torch.inf) & ~(torch.isinf(terms.up) & (activated.abs() < 1e-30))
        reasons += _judge_classes(candidate, truth, ~judged & settled, statistics)
    if statistics["unattainable"]:
        reasons.append(_describe_worst(candidate, truth, unattainable, contract, elements))
    return reasons


def _cancelling(name: str, terms: GatedTerms, candidate: torch.Tensor, suspects: torch.Tensor) -> int:
    """How many elements only the cancelling forms explain."""
    if name == "silu" or not bool(suspects.any()):
        return 0
    lowest, highest = gated_ends(terms, *activation_interval(name, terms, cancelling=False))
    return int((suspects & ~((candidate >= lowest) & (candidate <= highest))).sum())


# --- both -------------------------------------------------------------------------------------------------------------


def _counts(differing: torch.Tensor, unattainable: torch.Tensor, elements: int) -> dict[str, Any]:
    count = int(differing.sum())
    return {
        "elements": elements,
        "differing": count,
        "differing_rate": count / elements if elements else 0.0,
        "unattainable": int(unattainable.sum()),
    }


def _judge_classes(
    candidate: torch.Tensor, expected: torch.Tensor, compared: torch.Tensor, statistics: dict[str, Any]
) -> list[str]:
    """NaN, +Inf, -Inf or finite, where `compared`."""
    wrong = compared & (_class(candidate) != _class(expected))
    statistics["classes"] = int(compared.sum())
    count = statistics["class_mismatches"] = int(wrong.sum())
    if not count:
        return []
    row, column = divmod(int(wrong.reshape(-1).to(torch.uint8).argmax()), candidate.shape[-1])
    found, right = candidate[row, column].item(), expected[row, column].item()
    shown = right if not math.isfinite(right) else "finite"
    return [f"{count} non-finite results are of another class; row {row}, column {column} is {found:.9g}, not {shown}"]


def _class(values: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 Inf, -1 -Inf, 2 NaN."""
    infinite = torch.where(torch.isinf(values), torch.sign(values), 0).to(torch.int8)
    return torch.where(torch.isnan(values), 2, infinite)


def _describe_worst(candidate: torch.Tensor, truth: torch.Tensor, wrong: torch.Tensor, contract: Contract, elements: int) -> str:
    """The wrong element farthest from the truth, relative to it."""
    distance = ((candidate.double() - truth) / truth.abs().clamp(min=1e-45)).abs().nan_to_num(nan=torch.inf)
    row, column = divmod(int(torch.where(wrong, distance, -1.0).argmax()), candidate.shape[-1])
    right = round_from_f64(truth[row, column].reshape(1), candidate.dtype).item()
    return (
        f"{int(wrong.sum())} of {elements} elements lie where no fp32 evaluation of {contract.code} rounds to; "
        f"row {row}, column {column} is {candidate[row, column].item():.9g}, not {right:.9g}"
    )

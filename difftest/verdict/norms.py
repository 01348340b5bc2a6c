"""The judge of norms: the elements of a row share one rstd, and each output says something about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from difftest.verdict import elements
from difftest.verdict.rstd_interval import RstdInterval, rstd_interval
from reference.exact.attainable import sum_overflows
from reference.exact.terms import NormTerms
from reference.formats import bits
from reference.operators.contract import Contract

# The mean rstd error over rows is tested where at least this many generic rows have sums of squares of their own: rows
# are the independent units. Beyond 8 standard errors Student's t with 15 degrees of freedom leaves 9e-7, both sides.
DRIFT_ROWS = 16
DRIFT_STANDARD_ERRORS = 8.0


def judge(terms: NormTerms, outputs: Mapping[str, torch.Tensor], contract: Contract, statistics: dict[str, Any]) -> list[str]:
    """Why the outputs don't follow the contract, a sentence each; fills in the statistics."""
    candidate = outputs["output"].reshape(terms.hidden.shape)
    reasons = _judge_residual(terms, outputs, statistics) if terms.stored_sum is not None else []
    return reasons + _judge_output(terms, candidate, contract, statistics)


def _judge_residual(terms: NormTerms, outputs: Mapping[str, torch.Tensor], statistics: dict[str, Any]) -> list[str]:
    """The new residual, bit for bit; any NaN for a NaN."""
    right, found = terms.stored_sum, outputs["residual"]
    assert right is not None
    wrong = (bits(right) != bits(found.contiguous())) & ~(torch.isnan(right) & torch.isnan(found))
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


def _judge_output(terms: NormTerms, candidate: torch.Tensor, contract: Contract, statistics: dict[str, Any]) -> list[str]:
    rstd = rstd_interval(terms, candidate)
    statistics |= {"classes": 0, "class_mismatches": 0, "zero_signs": 0}
    reasons = _judge_special(terms, candidate, rstd.judged, statistics)
    count = int(rstd.judged.sum())
    statistics |= elements.counts(rstd.differing, rstd.unattainable, count)

    # Rows: is there one rstd, and is it near enough?
    measured = torch.isfinite(rstd.bound) & (rstd.lowest > -torch.inf)
    apart = measured & (rstd.lowest > rstd.highest)
    off = measured & ~apart & ((rstd.lowest > rstd.bound) | (rstd.highest < -rstd.bound))
    together = measured & ~apart
    errors = rstd.nearest[together]
    statistics |= {
        "rows": int(measured.sum()),
        "rows_unexplained": int((apart | off).sum()),
        "rstd_error_mean": float(errors.mean()) if len(errors) else 0.0,
        "rstd_error_max": float(errors.abs().max()) if len(errors) else 0.0,
        "rstd_bound": float(rstd.bound[measured].max()) if bool(measured.any()) else math.inf,
        "rstd_drift_bound": rstd.drift,
    }
    if bool(off.any()):
        row = int(torch.where(off, rstd.nearest.abs(), 0.0).argmax())
        reasons.append(
            f"{int(off.sum())} of {len(off)} rows: rstd is off; row {row} by {float(rstd.nearest[row]):+.2g}, "
            f"fp32 explains at most {float(rstd.bound[row]):.2g}"
        )
    if bool(apart.any()):
        row = int(torch.where(apart, rstd.lowest - rstd.highest, 0.0).argmax())
        reasons.append(
            f"{int(apart.sum())} of {len(apart)} rows: no single rstd explains the row; in row {row} one element needs "
            f"an error of at least {float(rstd.lowest[row]):+.2g}, another of at most "
            f"{float(rstd.highest[row]):+.2g}"
        )
    if statistics["unattainable"]:
        reasons.append(_worst_element(terms, candidate, rstd, contract, count))
    if not reasons and bool((candidate == 0).any()):
        reasons += elements.judge_zero_signs(candidate, terms.negative, rstd.judged & ~terms.sign_is_free(), statistics)
    if not reasons:
        reasons += _judge_drift(terms, rstd, together, statistics)
    # Which ties lie where is chance: a count exceeds its mean by 5 standard deviations and 5 with probability below 1e-6.
    expected_count = float(rstd.explained.sum())
    statistics["explained"] = min(count, int(expected_count + 5 * math.sqrt(expected_count) + 5))
    if statistics["differing"] > statistics["explained"] and not reasons:
        reasons.append(
            f"{statistics['differing']} of {count} elements are not the correctly rounded value; "
            f"fp32 explains at most {statistics['explained']}"
        )
    return reasons


def _judge_special(terms: NormTerms, candidate: torch.Tensor, judged: torch.Tensor, statistics: dict[str, Any]) -> list[str]:
    """What a NaN or an Inf reaches, or a root of 0: by class, and zeros where rstd is 0.

    In a row with an Inf, rstd is 0: finite elements give a zero, with its sign, the infinite ones NaN. A row that is all NaN
    is admitted there and where the sum of squares may be Inf: compensated sums (Kahan) and running means (Welford) subtract
    Inf from Inf.
    """
    by_class = ~judged & ~(terms.finite & torch.isfinite(terms.weight) & (terms.shifted > 0))
    overflows = sum_overflows(terms)  # of a row that an Inf reaches too
    may_be_nan = torch.where(overflows, candidate.isnan().all(-1, keepdim=True), torch.zeros_like(overflows))
    vanished = terms.finite & overflows & (candidate == 0).any(-1, keepdim=True)  # 0 * Inf where a weight is Inf
    info = torch.finfo(terms.storage if terms.rounds_norm else torch.float32)
    vanished = vanished | terms.finite & ((terms.hidden * terms.rstd).abs() < info.smallest_normal * info.eps)
    by_class &= ~may_be_nan & ~(vanished & torch.isinf(terms.weight))
    if not bool(by_class.any()):
        return []
    expected = _expected(terms)
    reasons = elements.judge_classes(candidate, expected, by_class, statistics)
    zero = by_class & (expected == 0) & ~terms.finite & torch.isfinite(candidate)
    other = zero & (candidate != 0)
    if count := int(other.sum()):
        statistics["class_mismatches"] += count
        row, column = divmod(int(other.reshape(-1).to(torch.uint8).argmax()), candidate.shape[-1])
        found = candidate[row, column].item()
        reasons.append(
            f"{count} finite elements of rows with an Inf are not 0, which rstd is; row {row}, column {column} is {found:.9g}"
        )
    return reasons or elements.judge_zero_signs(candidate, terms.negative, zero & ~terms.sign_is_free(), statistics)


def _expected(terms: NormTerms) -> torch.Tensor:
    """The value of every element up to its last rounding, of a class and a sign that are right."""
    expected = terms.hidden * terms.rstd
    if terms.rounds_norm:
        expected = expected.float().to(terms.storage).double()
    return expected * terms.weight


def _judge_drift(terms: NormTerms, rstd: RstdInterval, usable: torch.Tensor, statistics: dict[str, Any]) -> list[str]:
    """Do the rows' rstd errors share a mean that no fp32 kernel has? One row for each distinct sum of squares."""
    rows = torch.nonzero(rstd.generic & usable).squeeze(-1)
    mantissas = torch.frexp(terms.mean_square[rows, 0]).mantissa
    order = torch.argsort(mantissas)
    fresh = torch.ones_like(order, dtype=torch.bool)
    fresh[1:] = mantissas[order][1:] != mantissas[order][:-1]
    errors = rstd.nearest[rows[order[fresh]]]
    count = len(errors)
    statistics["drift_rows"] = count
    if count < DRIFT_ROWS:
        return []
    mean, standard_error = float(errors.mean()), float(errors.std()) / math.sqrt(count)
    excess = abs(mean) - rstd.drift
    if excess <= DRIFT_STANDARD_ERRORS * standard_error:
        return []
    return [
        f"rstd is off by {mean:+.2g} on average over {count} rows (standard error {standard_error:.1g}); "
        f"fp32 explains at most {rstd.drift:.2g} in every row alike"
    ]


def _worst_element(terms: NormTerms, candidate: torch.Tensor, rstd: RstdInterval, contract: Contract, count: int) -> str:
    return elements.describe_worst(candidate, terms.unrounded(), rstd.unattainable, contract, count)

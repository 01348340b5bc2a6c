"""The judge of norms: the elements of a row share one rstd, and each output says something about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from difftest.verdict import bias, elements, orders, pooled, special
from difftest.verdict.rstd_interval import RstdInterval, rstd_interval
from reference.exact.bounds import RSTD_BIAS, U32, additions_in_sequence
from reference.exact.terms import NormTerms
from reference.formats import bits
from reference.operators.contract import Contract


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
    """Under the rule of the chain; what that does not explain, under each order that has a name."""
    rstd = rstd_interval(terms, candidate)
    reasons = _judge_rows(terms, rstd, candidate, contract, statistics)
    if not reasons or not _may_be_an_order(terms, rstd, statistics):
        return reasons
    measured = _measured(rstd)
    right = terms.mean_square * terms.hidden.shape[-1]
    for order in orders.named():
        total = order.total(terms.hidden)
        if not orders.explains(terms, total, measured, rstd.lowest, rstd.highest):
            continue
        other, own = terms.of_sum(torch.where(measured[:, None], total, right), orders.TREE), dict(statistics)
        if not _judge_rows(other, rstd_interval(other, candidate), candidate, contract, own):
            statistics |= own | {"order": order.name}
            statistics.pop(pooled.STATISTIC, None)
            return []
    return reasons


def _may_be_an_order(terms: NormTerms, rstd: RstdInterval, statistics: dict[str, Any]) -> bool:
    """Whether the order of the sum may be all that is wrong: each row has one rstd, no farther off than a serial sum's bound."""
    measured = _measured(rstd)
    apart = bool((measured & (rstd.lowest > rstd.highest)).any())
    far = bool((measured & (rstd.nearest.abs() > terms.hidden.shape[-1] * U32)).any())
    return bool(measured.any()) and not (apart or far or statistics["class_mismatches"] or statistics["zero_signs"])


def _measured(rstd: RstdInterval) -> torch.Tensor:
    """The rows whose elements say anything of rstd."""
    return torch.isfinite(rstd.bound) & (rstd.lowest > -torch.inf)


def _judge_rows(
    terms: NormTerms, rstd: RstdInterval, candidate: torch.Tensor, contract: Contract, statistics: dict[str, Any]
) -> list[str]:
    statistics |= {"classes": 0, "class_mismatches": 0, "zero_signs": 0}
    reasons = special.judge(terms, candidate, rstd.judged, statistics)
    count = int(rstd.judged.sum())
    statistics |= elements.counts(rstd.differing, rstd.unattainable, count)

    # Rows: is there one rstd, and is it near enough?
    measured = _measured(rstd)
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
        "rstd_bias_bound": RSTD_BIAS,
    }
    if bool(off.any()):
        row = int(torch.where(off, rstd.nearest.abs(), 0.0).argmax())
        reasons.append(
            f"{int(off.sum())} of {len(off)} rows: rstd is off; row {row} by {float(rstd.nearest[row]):+.2g}, "
            f"sums of up to {terms.additions} additions in sequence explain {float(rstd.bound[row]):.2g}, and no named order this"
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
        reasons += bias.judge(terms, rstd, together, statistics)
    # Which ties lie where is chance: a count exceeds its mean by 6 standard deviations and 6 with probability below 1e-8.
    expected_count = float(rstd.explained.sum())
    statistics["explained"] = min(count, int(expected_count + 6 * math.sqrt(expected_count) + 6))
    if statistics["differing"] > statistics["explained"] and not reasons:
        reasons.append(
            f"{statistics['differing']} of {count} elements are not the correctly rounded value; "
            f"fp32 explains at most {statistics['explained']}"
        )
    if not reasons:
        reasons += _judge_mean(terms, rstd, candidate, statistics)
    return reasons


def _judge_mean(terms: NormTerms, rstd: RstdInterval, candidate: torch.Tensor, statistics: dict[str, Any]) -> list[str]:
    """Whether the rows' rstd errors are off to one side on average; what a run adds up of many cases."""
    if terms.additions == additions_in_sequence(terms.hidden.shape[-1]):
        found = pooled.sums(terms, rstd, candidate)
        statistics[pooled.STATISTIC] = pooled.plain(found)
        return [pooled.sentence(found[""])] if found[""].leans() else []
    of_order = pooled.of_case(terms, rstd)
    return [pooled.sentence(of_order, "named")] if of_order.leans("named") else []


def _worst_element(terms: NormTerms, candidate: torch.Tensor, rstd: RstdInterval, contract: Contract, count: int) -> str:
    return elements.describe_worst(candidate, terms.unrounded(), rstd.unattainable, contract, count)

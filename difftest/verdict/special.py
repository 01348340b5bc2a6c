"""The elements of a norm that have no value to be near: what a NaN or an Inf reaches, and a root of 0."""

from __future__ import annotations

from typing import Any

import torch

from difftest.verdict import elements
from reference.exact.attainable import sum_overflows
from reference.exact.terms import NormTerms


def judge(terms: NormTerms, candidate: torch.Tensor, judged: torch.Tensor, statistics: dict[str, Any]) -> list[str]:
    """What a NaN or an Inf reaches, or a root of 0: by class, and zeros where rstd is 0.

    In a row with an Inf, rstd is 0: finite elements give a zero, with its sign, the infinite ones NaN. A row that is all NaN
    is admitted there and where the sum of squares may be Inf: compensated sums (Kahan) and running means (Welford) subtract
    Inf from Inf.
    """
    if bool(judged.all()):
        return []
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

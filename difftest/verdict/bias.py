"""Do the rows' rstd errors lean to one side? Rounding to nearest leans to none; what cuts off does, in every row.

The test is a likelihood ratio, whose false alarms Markov's inequality bounds: under the null hypothesis its expectation is at
most 1, so that it reaches 1/p with probability p at most, however few the rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from difftest.verdict.rstd_interval import RstdInterval
from reference.exact.bounds import RSTD_BIAS, additions_in_sequence, rstd_deviation
from reference.exact.terms import NormTerms

FALSE_ALARM = 1e-8  # of one case; a default run has some 2 500 of norms
OF_AN_ORDER = 1e-4  # of one that a named order is to explain: a kernel that sums otherwise may be near it by chance
# The alternatives, in standard deviations beyond the bias allowed: nearer ones hardly show, and farther ones leave the bound.
LEANINGS = (1.0, 2.0, 3.0, 4.5, 6.0, 9.0, 12.0, 18.0, 24.0, 36.0)
DISTINCT = 64  # magnitudes that a row must have: a pattern that repeats rounds the same way again and again


def judge(terms: NormTerms, rstd: RstdInterval, usable: torch.Tensor, statistics: dict[str, Any]) -> list[str]:
    """Whether the generic rows lean; one row for each mantissa of the mean square, since rows alike have errors alike."""
    statistics |= {"bias_evidence": 0.0, "bias_rows": 0}
    outside = (rstd.lowest > RSTD_BIAS) | (rstd.highest < -RSTD_BIAS)
    if not bool((rstd.generic & usable & outside).any()):
        return []
    rows = torch.nonzero(rstd.generic & usable).squeeze(-1)
    mantissas = torch.frexp(terms.mean_square[rows, 0]).mantissa
    order = torch.argsort(mantissas)
    fresh = torch.ones_like(order, dtype=torch.bool)
    fresh[1:] = mantissas[order][1:] != mantissas[order][:-1]
    rows = rows[order[fresh]]
    evidence = statistics["bias_evidence"] = leaning(rstd.lowest[rows], rstd.highest[rows], rstd_deviation(terms.additions))
    statistics["bias_rows"] = len(rows)
    most = -math.log(FALSE_ALARM if terms.additions == additions_in_sequence(terms.hidden.shape[-1]) else OF_AN_ORDER)
    if evidence < most:
        return []
    varied = torch.tensor([len(terms.hidden[row].abs().unique()) >= DISTINCT for row in rows.tolist()])
    if not bool(varied.all()):
        rows = rows[varied]
        evidence = leaning(rstd.lowest[rows], rstd.highest[rows], rstd_deviation(terms.additions))
        if evidence < most:
            return []
    mean = float(rstd.nearest[rows].mean())
    return [
        f"rstd leans to one side: it is off by at least {mean:+.2g} on average over {len(rows)} rows; fp32 explains "
        f"{RSTD_BIAS:.2g} in every row alike and {rstd_deviation(terms.additions):.1g} by chance, with odds of 1 to "
        f"1e{evidence / math.log(10):.0f}"
    ]


def leaning(lowest: torch.Tensor, highest: torch.Tensor, deviation: float) -> float:
    """The logarithm of the likelihood ratio for rows whose rstd errors lie in [lowest, highest], (rows,) each.

    Null: errors independent and normal, their mean within `RSTD_BIAS`, their deviation at most `deviation`. Then an interval
    above the bias has at most the tail beyond its lower end, and any other at most 1. Alternatives: one mean further out,
    of either sign, all of `LEANINGS` alike.
    """
    if not len(lowest):
        return 0.0
    leanings = torch.tensor(LEANINGS, dtype=torch.float64)[:, None]
    sides = []
    for low, high in ((lowest, highest), (-highest, -lowest)):
        start, end = (low - RSTD_BIAS) / deviation, (high - RSTD_BIAS) / deviation
        null = torch.where(start > 0, torch.special.log_ndtr(-start.clamp(min=0)), 0.0).sum()
        inside = log_probability(start - leanings, end - leanings).sum(-1)
        sides.append(inside.logsumexp(0) - math.log(2 * len(LEANINGS)) - null)
    return float(torch.stack(sides).logsumexp(0))


def log_probability(start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """The logarithm of a standard normal's probability of [start, end], in the tails too; -Inf for an empty interval."""
    flip = start + end > 0
    near, far = torch.where(flip, -start, end), torch.where(flip, -end, start)
    log_near, log_far = torch.special.log_ndtr(near), torch.special.log_ndtr(far)
    return torch.where(near > far, log_near + torch.log1p(-torch.exp(log_far - log_near)), -torch.inf)

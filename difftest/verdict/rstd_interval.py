"""What a norm's output says about the rstd that made it: the relative error of each row's, located between two bounds.

All elements of a row share one rstd, and each output measures it: the value lies in the output's rounding interval, hence
the rstd in that interval divided by the element's other factors. One element says little (2^-9 in bf16); the intervals of
4096 overlap in about 1e-6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from reference.exact.attainable import (
    is_exact,
    leaves_fp32,
    norm_ends,
    norm_judged,
    norm_rstd_error,
    product_roundings,
    sum_overflows,
)
from reference.exact.bounds import RSTD_BIAS, U64, product_error, rstd_deviation
from reference.exact.terms import NormTerms
from reference.rounding import rounding_interval

# Rows on which rounding errors of a sum behave as if random: neither constant (kurtosis 1: the same error again and
# again) nor ruled by an outlier (small squares vanish in a large sum, always downwards). Uniform rows have 1.8, normal 3.
GENERIC_WIDTH = 64
GENERIC_KURTOSIS = (1.5, 10.0)


@dataclass(frozen=True, slots=True)
class RstdInterval:
    """One output of a norm, seen as measurements of its rows' rstd. Shapes (rows,) or (rows, width).

    `lowest`, `highest`: the interval of relative rstd errors that explains every usable element of the row up to its own
    product roundings; empty (lowest > highest) when no single rstd does. `bound`: what fp32 explains, infinite for rows
    that are not judged. `generic`: rows on which rounding errors behave as if random. `judged`: elements with a bound.
    `unattainable`: judged elements that no rstd within the bound explains, even alone. `differing`: judged elements that
    are not the correctly rounded value. `explained`: how many elements of each row fp32 is expected to make differ at most,
    its rstd being off by `typical_error`.
    """

    lowest: torch.Tensor
    highest: torch.Tensor
    bound: torch.Tensor
    generic: torch.Tensor
    judged: torch.Tensor
    unattainable: torch.Tensor
    differing: torch.Tensor
    explained: torch.Tensor

    @property
    def nearest(self) -> torch.Tensor:
        """The rstd error nearest to zero in each row's interval: how far off it must be at least, with its sign."""
        return torch.clamp(torch.zeros_like(self.lowest), self.lowest, self.highest)


def rstd_interval(terms: NormTerms, candidate: torch.Tensor) -> RstdInterval:
    """What `candidate` (rows, width), the storage dtype, says of each row's rstd under the contract that made `terms`."""
    bound = norm_rstd_error(terms)
    slack = product_error(1 if terms.rounds_norm else 2, terms.bias_rounds and not terms.rounds_norm)
    normalised = terms.hidden * terms.rstd
    value = normalised if terms.rounds_norm else normalised * terms.weight
    # Ratios of the rounding interval's ends to the value: 1 lies between them exactly where the output is right.
    lowest, highest, unreachable = (_inner_ratios if terms.rounds_norm else _ratios)(terms, value, candidate)

    judged = norm_judged(terms)
    zero = value == 0  # an element or its weight is zero: so is the output, in any arithmetic
    unattainable = zero & (candidate != 0)
    alone = torch.isnan(candidate) | is_exact(terms)
    overflows = sum_overflows(terms)
    if bool(overflows.any()):
        zeros = (candidate == 0) | ~torch.isfinite(terms.weight)  # 0 times an Inf or a NaN is NaN
        alone = alone | (overflows & zeros.all(-1, keepdim=True))
        judged = judged & ~(overflows & candidate.isnan().all(-1, keepdim=True))  # Inf - Inf, as in a row with an Inf
    if _may_leave_fp32(terms):
        alone = alone | leaves_fp32(terms)
    if bool(alone.any()):
        # No statement about rstd: these are held against their own attainable sets.
        unattainable |= alone & ~norm_ends(terms).contains(candidate)
    usable = judged & ~zero & ~alone
    differing = unattainable.clone()
    if not bool(usable.all()):
        lowest = torch.where(usable, lowest, -torch.inf)
        highest = torch.where(usable, highest, torch.inf)
        unreachable = unreachable & usable

    unattainable |= unreachable | (lowest > (1 + bound) * (1 + slack)) | (highest < (1 - bound) * (1 - slack))
    # An end may be a tie, which the value is: the quotient is then off by float64's rounding.
    differing |= unreachable | (lowest > 1 + 4 * U64) | (highest < 1 - 4 * U64)
    generic = _generic(terms) & torch.isfinite(bound)
    return RstdInterval(
        lowest=(lowest.amax(dim=-1) / (1 + slack) - 1),
        highest=(highest.amin(dim=-1) / (1 - slack) - 1),
        bound=bound.squeeze(-1),
        generic=generic.squeeze(-1),
        judged=judged,
        unattainable=unattainable & judged,
        differing=differing & judged,
        explained=_explained(lowest, highest, judged, typical_error(terms, bound, generic), slack),
    )


def typical_error(terms: NormTerms, bound: torch.Tensor, generic: torch.Tensor) -> torch.Tensor:
    """(rows, 1): how far off rstd is taken to be when differing elements are counted over all rows.

    Of generic rows the bias that all may share and one standard deviation, which the mean of the magnitudes exceeds by six
    standard errors with probability below 1e-8; at most the bound. Elsewhere the bound itself.
    """
    rows = max(1, int(generic.sum()))
    likely = RSTD_BIAS + rstd_deviation(terms.additions) * (1.0 + 6.0 / math.sqrt(rows))
    return torch.where(generic, bound.clamp(max=likely), bound)


def _explained(
    lowest: torch.Tensor, highest: torch.Tensor, judged: torch.Tensor, error: torch.Tensor, slack: float
) -> torch.Tensor:
    """(rows,): how many elements are expected within reach of a tie; a half is an element that one sign reaches.

    The row's error has one sign, and knows nothing of the ties: it reaches half of those within error + slack, and the
    slack alone the other half. An interval narrower than that puts a tie within reach of any value (fp32 storage).
    """
    reach = error + slack
    above, below = (highest - 1).abs(), (lowest - 1).abs()
    narrow = highest - lowest < reach
    hits = torch.zeros_like(lowest[..., 0])
    for distance in (above, below):
        for limit in (reach, slack):
            hits += (((distance < limit) | narrow) & judged).sum(dim=-1)
    return hits / 2


def _ratios(terms: NormTerms, value: torch.Tensor, candidate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """W0: the interval of the output over the value."""
    interval_lowest, interval_highest = rounding_interval(candidate)
    inverse = 1.0 / value
    ends = interval_lowest * inverse, interval_highest * inverse
    return torch.minimum(*ends), torch.maximum(*ends), torch.zeros_like(value, dtype=torch.bool)


def _inner_ratios(
    terms: NormTerms, value: torch.Tensor, candidate: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """W1: the intervals of the rounded normalised values that, times the weight, give the output; over the value.

    The right one and its two neighbours are tried, since rstd's bound is far below their spacing. If an element fits
    none, so are those that the outputs themselves point to, output / weight and its neighbours: to say how far off rstd
    is. The third result says where none gives the output.
    """
    negative = torch.signbit(value) ^ torch.signbit(terms.weight)
    wanted = torch.where(negative, -candidate, candidate)
    magnitude, weight = value.abs(), terms.weight.abs().expand_as(value)
    lowest, highest = _inner_intervals(magnitude, wanted, weight)
    if bool((highest < lowest).any()):
        farther = _inner_intervals(wanted.double() / weight, wanted, weight)
        lowest, highest = torch.minimum(lowest, farther[0]), torch.maximum(highest, farther[1])
    none = highest < lowest
    inverse = 1.0 / magnitude
    return (
        torch.where(none, -torch.inf, lowest * inverse),
        torch.where(none, torch.inf, highest * inverse),
        none,
    )


def _inner_intervals(around: torch.Tensor, wanted: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The hull of the intervals of those storage values, `around` rounded and one step to either side, whose product with
    the weight rounds to `wanted`. All magnitudes. Empty, (inf, -inf), where there is none."""
    pattern = around.float().to(wanted.dtype).view(torch.int16)
    lowest, highest = torch.full_like(around, torch.inf), torch.full_like(around, -torch.inf)
    for step in (-1, 0, 1):
        inner = torch.clamp(pattern + step, min=0).view(wanted.dtype)
        low, high, _ = product_roundings(inner, weight, wanted.dtype)
        gives = (wanted == low) | (wanted == high)
        interval_lowest, interval_highest = rounding_interval(inner)
        lowest = torch.where(gives, torch.minimum(lowest, interval_lowest), lowest)
        highest = torch.where(gives, torch.maximum(highest, interval_highest), highest)
    return lowest, highest


def _may_leave_fp32(terms: NormTerms) -> bool:
    """A cheap look over rows and weights: False where `leaves_fp32` is False for every element with a value."""
    magnitude = terms.hidden.abs()
    smallest = torch.where(magnitude > 0, magnitude, torch.inf).amin(dim=-1, keepdim=True)
    largest = magnitude.amax(dim=-1, keepdim=True)
    weight = terms.weight.abs()
    smallest_weight = torch.where(weight > 0, weight, torch.inf).amin()
    safe = (smallest > 2.0**-100) & (largest < 2.0**50) & (smallest * terms.rstd > 2.0**-100)
    safe &= smallest * terms.rstd * smallest_weight > 2.0**-120
    safe &= smallest * terms.rstd * smallest_weight > 2.0**-100
    safe &= (smallest_weight * terms.rstd > 2.0**-100) & (weight.amax() * terms.rstd < 2.0**100)
    return not bool(safe.all())


def _generic(terms: NormTerms) -> torch.Tensor:
    """(rows, 1): rows whose kurtosis is that of ordinary data."""
    width = terms.hidden.shape[-1]
    if width < GENERIC_WIDTH:
        return torch.zeros_like(terms.finite)
    fourth = terms.hidden.square().square().sum(dim=-1, keepdim=True) / width
    kurtosis = fourth / terms.mean_square.square()
    return (kurtosis > GENERIC_KURTOSIS[0]) & (kurtosis < GENERIC_KURTOSIS[1])

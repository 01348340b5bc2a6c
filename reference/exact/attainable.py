"""For every element the values that fp32 evaluation of a contract can round to: from the lowest to the highest.

"fp32 evaluation" is any summation order whose longest chain is
`bounds.additions_in_sequence(width)`, FMA or not, any documented root and reciprocal, (h * rstd) * w or h * (rstd * w),
subnormal fp32 results kept or flushed to zero. The bounds' derivations: `bounds.py`, `activations.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

import torch

from reference.exact.activations import EXP_LIMIT, cancellation_error, underflow_error
from reference.exact.bounds import FP32_LAST, FP32_MAX, FP32_TINY, product_error, rstd_error
from reference.exact.oracle import exact_outputs
from reference.exact.terms import GatedTerms, NormTerms, Terms, terms
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors
from reference.rounding import round_from_f64


@dataclass(frozen=True)
class Attainable:
    """By output name, the ends of every element's set, in the storage dtype and the call's shape.

    The set is every storage value between the ends. `judged` is False where no bound holds: rows that a NaN or an Inf
    reaches, non-finite weights, gates or ups, and rows whose mean square fp32 cannot tell from zero. Such elements have
    NaN ends; only their class means anything.
    """

    lowest: Mapping[str, torch.Tensor]
    highest: Mapping[str, torch.Tensor]
    judged: Mapping[str, torch.Tensor]

    def contains(self, candidate: torch.Tensor, name: str = "output") -> torch.Tensor:
        """Where `candidate` is attainable (bool); True where nothing is judged. -0 and +0 are one value."""
        inside = (candidate >= self.lowest[name]) & (candidate <= self.highest[name])
        return inside | ~self.judged[name]


def attainable(op: str | Operator, inputs: Tensors, contract: Contract) -> Attainable:
    """The attainable set of every output element of `op` under `contract`. Nothing is mutated.

    The new residual's set is one value: the fp32 sum, rounded. Shapes, dtypes, errors: `reference.arithmetic.evaluate`.
    """
    found = terms(op, inputs, contract)
    lowest, highest = ends(found)
    within = judged(found)
    low = {"output": torch.where(within, lowest, torch.nan).reshape(found.shape)}
    high = {"output": torch.where(within, highest, torch.nan).reshape(found.shape)}
    by_name = {"output": within.reshape(found.shape)}
    for name, (stored, _) in exact_outputs(found).items():
        low[name] = high[name] = stored
        by_name[name] = torch.isfinite(stored)
    return Attainable(low, high, by_name)


@singledispatch
def ends(found: Terms) -> tuple[torch.Tensor, torch.Tensor]:
    """The ends of every element's set, (rows, width), storage dtype; without meaning where it is not `judged`."""
    raise NotImplementedError(f"no attainable set for {type(found).__name__}")


@singledispatch
def judged(found: Terms) -> torch.Tensor:
    """Where an element's value is bounded, (rows, width)."""
    raise NotImplementedError(f"no attainable set for {type(found).__name__}")


# --- norms ------------------------------------------------------------------------------------------------------------


def norm_rstd_error(terms: NormTerms) -> torch.Tensor:
    """The fp32 bound on each row's rstd, (rows, 1)."""
    return rstd_error(terms.hidden.shape[-1], terms.mean_square, terms.shifted)


@judged.register
def norm_judged(terms: NormTerms) -> torch.Tensor:
    """Where an element's value is bounded: finite row, finite weight, rstd with digits; (rows, width)."""
    return terms.finite & torch.isfinite(norm_rstd_error(terms)) & torch.isfinite(terms.weight)


def leaves_fp32(terms: NormTerms) -> torch.Tensor:
    """Where fp32 may lose an intermediate, so that relative bounds fail; (rows, width).

    Either the sum of squares overflows (rstd, and the output, become 0), or h, h * rstd or rstd * weight is subnormal
    (flushed to zero, or rounded coarsely) or too large although the product comes back.
    """
    overflows = terms.mean_square * terms.hidden.shape[-1] * (1 + 2.0**-7) > FP32_MAX  # 2^-7: any sum's error
    hidden, scale = terms.hidden.abs(), (terms.weight * terms.rstd).abs()
    smallest = torch.minimum(torch.minimum(hidden, hidden * terms.rstd), scale)
    return overflows | (smallest < 1.001 * FP32_TINY) | (scale > 0.999 * FP32_MAX)


@ends.register
def norm_ends(terms: NormTerms) -> tuple[torch.Tensor, torch.Tensor]:
    """The ends of every element's set."""
    value = (terms.hidden * terms.rstd).abs()
    weight = terms.weight.abs()
    factors = 1 if terms.rounds_norm else 2
    error = norm_rstd_error(terms) + product_error(factors, terms.biased and not terms.rounds_norm)
    # A subnormal h * rstd or rstd * weight is off by half of FP32_LAST before its other factor multiplies it.
    strained = leaves_fp32(terms)
    underflow = torch.where(strained, (terms.hidden.abs() + weight) * FP32_LAST, 0.0)
    if terms.rounds_norm:
        inner_low, inner_high = to_storage_ends(value, error, 0.0, terms.storage)
        inner_low = torch.where(strained, 0.0, inner_low)
        low, _ = product_roundings(inner_low, weight, terms.storage)
        _, high = product_roundings(inner_high, weight, terms.storage)
    else:
        low, high = to_storage_ends(value * weight, error, underflow, terms.storage)
        low = torch.where(strained, 0.0, low)
        too_large = weight * terms.rstd > 0.999 * FP32_MAX
        high = torch.where(too_large & (value > 0), torch.inf, high)
    return _signed(low, high, torch.signbit(terms.hidden) ^ torch.signbit(terms.weight))


# --- gated activations ------------------------------------------------------------------------------------------------


def activation_interval(terms: GatedTerms, *, cancelling: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """|act(gate)| in fp32, or the factor alone where the contract rounds that: (lowest, highest) in float64.

    `cancelling=False` leaves out 1 + erf and 1 + tanh.
    """
    gate = torch.ones_like(terms.gate) if terms.rounds_factor else terms.gate
    value = (gate * terms.factor).abs()
    slack = value * terms.analysis.fp32_error(terms.gate, terms.factor, terms.argument) + underflow_error(gate)
    if cancelling and terms.analysis.cancels:
        slack = slack + cancellation_error(gate)
    lowest = value - slack
    vanishes = (lowest < FP32_TINY) | (terms.argument < EXP_LIMIT)
    return torch.where(vanishes, 0.0, lowest), value + slack


def gated_ends(terms: GatedTerms, lowest: torch.Tensor, highest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The ends in the storage dtype for an activation (or a factor) with its magnitude in [lowest, highest]."""
    negative = torch.signbit(terms.gate) ^ torch.signbit(terms.up)
    if not terms.later_factors():
        up, error = terms.up.abs(), product_error(1, terms.biased)
        low, _ = to_storage_ends(lowest * up, error, 0.0, terms.storage)
        _, high = to_storage_ends(highest * up, error, 0.0, terms.storage)
        return _signed(low, high, negative)
    low, high = lowest.float().to(terms.storage), highest.float().to(terms.storage)
    for factor in terms.later_factors():
        low, _ = product_roundings(low, factor.abs(), terms.storage)
        _, high = product_roundings(high, factor.abs(), terms.storage)
    return _signed(low, high, negative)


@ends.register
def _(terms: GatedTerms) -> tuple[torch.Tensor, torch.Tensor]:
    return gated_ends(terms, *activation_interval(terms))


@judged.register
def gated_judged(terms: GatedTerms) -> torch.Tensor:
    """Where gate and up are finite, after the formula's clamps."""
    return torch.isfinite(terms.gate) & torch.isfinite(terms.up)


# --- rounding the ends ------------------------------------------------------------------------------------------------


def to_storage_ends(
    magnitude: torch.Tensor, relative: torch.Tensor | float, absolute: torch.Tensor | float, storage: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both ends of magnitude * (1 -+ relative) -+ absolute, through fp32 to `storage`; a subnormal low end is 0.

    Through fp32 because the numbers enclosed are fp32 numbers: rounding is monotone, so the ends stay ends.
    """
    slack = magnitude * relative + absolute
    low = torch.clamp(magnitude - slack, min=0.0)
    low = torch.where(low < FP32_TINY, 0.0, low)
    return low.float().to(storage), (magnitude + slack).float().to(storage)


def product_roundings(stored: torch.Tensor, factor: torch.Tensor, storage: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """stored * |factor| rounded to `storage`: (lowest, highest) of rounding once and of rounding through fp32.

    One value where the product is an fp32 number, as that of two 16-bit values is unless it is subnormal. `stored` is
    a magnitude, `factor` float64 and exact.
    """
    product = stored.double() * factor
    through_fp32 = product.float()
    low = high = through_fp32.to(storage)
    if bool((through_fp32.double() != product).any()):
        once = round_from_f64(product, storage)
        low, high = torch.minimum(low, once), torch.maximum(high, once)
    return torch.where(product < FP32_TINY, 0.0, low), high


def _signed(low: torch.Tensor, high: torch.Tensor, negative: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.where(negative, -high, low), torch.where(negative, -low, high)

"""For every element the values that fp32 evaluation of a contract can round to: from the lowest to the highest.

"fp32 evaluation" is any summation order whose longest chain is
`bounds.additions_in_sequence(width)`, FMA or not, any documented root and reciprocal, (h * rstd) * w or h * (rstd * w),
subnormal fp32 results kept or flushed to zero; (g * u) * sigmoid(g), 1 + erf and 1 + tanh for the activations.
The bounds' derivations: `bounds.py`, `activations.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

import torch

from reference.exact.activations import EXP_LIMIT, SATURATED, underflow_error
from reference.exact.bounds import FP32_LAST, FP32_MAX, FP32_TINY, U32, product_error, rstd_error
from reference.exact.oracle import exact_outputs
from reference.exact.terms import GatedTerms, NormTerms, Terms, terms
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors
from reference.rounding import round_from_f64


class Ends(NamedTuple):
    """A set of values for each element: all between `lowest` and `highest`, and zero where it `vanishes`."""

    lowest: torch.Tensor
    highest: torch.Tensor
    vanishes: torch.Tensor

    def contains(self, candidate: torch.Tensor) -> torch.Tensor:
        """Where `candidate` is in the set. -0 and +0 are one value: `Terms.negative` has the sign."""
        return ((candidate >= self.lowest) & (candidate <= self.highest)) | (self.vanishes & (candidate == 0))

    def signed(self, negative: torch.Tensor) -> Ends:
        """The same of numbers of that sign; these are magnitudes."""
        low, high = torch.where(negative, -self.highest, self.lowest), torch.where(negative, -self.lowest, self.highest)
        return Ends(low, high, self.vanishes)


@dataclass(frozen=True)
class Attainable:
    """By output name, the set of every element, in the call's shape and the storage dtype.

    `judged` is False where no bound holds: rows that a NaN or an Inf reaches, non-finite weights, gates or ups, and rows
    whose mean square fp32 cannot tell from zero. Such elements have NaN ends; only their class means anything.
    """

    ends: Mapping[str, Ends]
    judged: Mapping[str, torch.Tensor]

    def lowest(self, name: str = "output") -> torch.Tensor:
        """The least value of every element's set."""
        ends = self.ends[name]
        return torch.where(ends.vanishes, ends.lowest.clamp(max=0.0), ends.lowest)

    def highest(self, name: str = "output") -> torch.Tensor:
        """The largest value of every element's set."""
        ends = self.ends[name]
        return torch.where(ends.vanishes, ends.highest.clamp(min=0.0), ends.highest)

    def contains(self, candidate: torch.Tensor, name: str = "output") -> torch.Tensor:
        """Where `candidate` is attainable (bool); True where nothing is judged. -0 and +0 are one value."""
        return self.ends[name].contains(candidate) | ~self.judged[name]


def attainable(op: str | Operator, inputs: Tensors, contract: Contract) -> Attainable:
    """The attainable set of every output element of `op` under `contract`. Nothing is mutated.

    The new residual's set is one value: the fp32 sum, rounded. Shapes, dtypes, errors: `reference.arithmetic.evaluate`.
    """
    found = terms(op, inputs, contract)
    lowest, highest, vanishes = ends(found)
    within = judged(found)
    low, high = (torch.where(within, end, torch.nan).reshape(found.shape) for end in (lowest, highest))
    by_name = {"output": Ends(low, high, vanishes.reshape(found.shape))}
    is_judged = {"output": within.reshape(found.shape)}
    for name, (stored, _) in exact_outputs(found).items():
        by_name[name] = Ends(stored, stored, torch.zeros_like(stored, dtype=torch.bool))
        is_judged[name] = torch.isfinite(stored)
    return Attainable(by_name, is_judged)


@singledispatch
def ends(found: Terms) -> Ends:
    """The set of every element, (rows, width), storage dtype; without meaning where it is not `judged`."""
    raise NotImplementedError(f"no attainable set for {type(found).__name__}")


@singledispatch
def judged(found: Terms) -> torch.Tensor:
    """Where an element's value is bounded, (rows, width)."""
    raise NotImplementedError(f"no attainable set for {type(found).__name__}")


# --- norms ------------------------------------------------------------------------------------------------------------


def norm_rstd_error(terms: NormTerms) -> torch.Tensor:
    """The fp32 bound on each row's rstd, (rows, 1)."""
    return rstd_error(terms.additions, terms.mean_square, terms.shifted)


@judged.register
def norm_judged(terms: NormTerms) -> torch.Tensor:
    """Where an element's value is bounded: finite row, finite weight, rstd with digits; (rows, width)."""
    return terms.finite & torch.isfinite(norm_rstd_error(terms)) & torch.isfinite(terms.weight)


def sum_overflows(terms: NormTerms) -> torch.Tensor:
    """(rows, 1): where a plain fp32 sum of squares may be Inf, so that rstd and the whole row are 0; or the row is right."""
    return terms.mean_square * terms.hidden.shape[-1] * (1 + 2.0**-7) > FP32_MAX  # 2^-7: any sum's error


def is_exact(terms: NormTerms) -> torch.Tensor:
    """(rows, 1): where fp32 makes no error up to rstd, in any order: rstd is a power of two, and one rounding is left.

    The mean square is a power of 4, eps adds nothing, every partial sum of squares is an fp32 number and the mean divides by
    a power of two. The roots of `bounds.RSQRT` are exact there: correctly rounded ones are, and the approximate ones, whose
    tables begin at 1.
    """
    width = terms.hidden.shape[-1]
    if width & (width - 1) or width >= 2**24:
        return torch.zeros_like(terms.finite)
    mantissa, exponent = torch.frexp(terms.mean_square)
    exact = terms.finite & (mantissa == 0.5) & (exponent % 2 == 1) & (terms.shifted == terms.mean_square)
    exact &= (terms.mean_square > 2.0**-100) & (terms.mean_square < 2.0**100)
    if not bool(exact.any()):
        return exact
    digits = (24 - width.bit_length() + 1) // 2  # squares of multiples of 2^-digits have sums of at most 24 bits
    steps = terms.hidden * terms.rstd * 2.0**digits
    return exact & (steps == steps.round()).all(dim=-1, keepdim=True)


def leaves_fp32(terms: NormTerms) -> torch.Tensor:
    """Where fp32 may lose an intermediate, so that relative bounds fail; (rows, width).

    h, h * rstd or rstd * weight is subnormal (flushed to zero, or rounded coarsely) or too large although the product
    comes back; or the product is, which fp32 rounds coarsely before storage does.
    """
    hidden, scale = terms.hidden.abs(), (terms.weight * terms.rstd).abs()
    smallest = torch.minimum(torch.minimum(hidden, hidden * terms.rstd), scale)
    if terms.storage is not torch.float32:
        smallest = torch.minimum(smallest, hidden * scale)
    return (smallest < 1.001 * FP32_TINY) | (scale > 0.999 * FP32_MAX)


@ends.register
def norm_ends(terms: NormTerms) -> Ends:
    """The set of every element."""
    value = (terms.hidden * terms.rstd).abs()
    weight = terms.weight.abs()
    factors = 1 if terms.rounds_norm else 2
    error = norm_rstd_error(terms) + product_error(factors, terms.bias_rounds and not terms.rounds_norm)
    # A subnormal h * rstd or rstd * weight is off by half of FP32_LAST before its other factor multiplies it.
    strained = leaves_fp32(terms)
    underflow = torch.where(strained, (terms.hidden.abs() + weight) * FP32_LAST, 0.0)
    vanishes = strained | sum_overflows(terms)
    if not terms.bias_rounds:
        one_rounding = is_exact(terms) & ~strained
        if not terms.rounds_norm and terms.storage is not torch.float32:
            product = value * weight
            one_rounding = one_rounding & (product.float().double() == product)
        error = torch.where(one_rounding, 0.0, error)
    if terms.rounds_norm:
        inner = to_storage_ends(value, error, 0.0, terms.storage)
        low, _, first_vanishes = product_roundings(inner.lowest, weight, terms.storage)
        _, high, _ = product_roundings(inner.highest, weight, terms.storage)
        vanishes = vanishes | first_vanishes | inner.vanishes
    else:
        low, high, first_vanishes = to_storage_ends(value * weight, error, underflow, terms.storage)
        vanishes = vanishes | first_vanishes
        too_large = weight * terms.rstd > 0.999 * FP32_MAX
        high = torch.where(too_large & (value > 0), torch.inf, high)
    return Ends(low, high, vanishes).signed(terms.negative)


# --- gated activations ------------------------------------------------------------------------------------------------


def activation_interval(terms: GatedTerms, *, cancelling: bool = True) -> Ends:
    """|act(gate)| in fp32, or the factor alone where the contract rounds that, float64.

    `cancelling=False` leaves out 1 + erf and 1 + tanh.
    """
    analysis = terms.analysis
    gate = torch.ones_like(terms.gate) if terms.rounds_factor else terms.gate
    value = (gate * terms.factor).abs()
    slack = value * analysis.fp32_error(terms.gate, terms.factor, terms.argument) + underflow_error(gate)
    vanishes = (value - slack < FP32_TINY) | (terms.argument < EXP_LIMIT)
    if cancelling and analysis.cancelling_error is not None:
        saturated = terms.factor < SATURATED
        slack = slack + torch.where(saturated, 0.0, gate.abs() * analysis.cancelling_error(terms.factor, terms.argument))
        vanishes = vanishes | saturated
    # No form's factor exceeds 1, and where 1 - factor is below a quarter of U32 each of them rounds to 1 or below.
    highest = torch.where(terms.factor > 1.0 - U32 / 4, gate.abs(), value + slack)
    return Ends(torch.clamp(value - slack, min=0.0), highest, vanishes)


def gated_ends(terms: GatedTerms, activation: Ends) -> Ends:
    """The set in the storage dtype for an activation (or a factor) with its magnitude in `activation`."""
    lowest, highest, vanishes = activation
    if not terms.later_factors():
        up = terms.up.abs()
        # (gate * up) * sigmoid: gate * up may be subnormal, and off by half of FP32_LAST.
        least = to_storage_ends(lowest * up, product_error(1, terms.bias_rounds), FP32_LAST, terms.storage)
        most = highest * up
        # Where the activation is the gate, gate * up is rounded once, if fp32 holds it.
        exact = (highest == terms.gate.abs()) & (not terms.bias_rounds)
        if terms.storage is not torch.float32:
            exact = exact & (most.float().double() == most)
        error = torch.where(exact, 0.0, product_error(1, terms.bias_rounds))
        greatest = to_storage_ends(most, error, torch.where(exact, 0.0, FP32_LAST), terms.storage)
        return Ends(least.lowest, greatest.highest, vanishes | least.vanishes).signed(terms.negative)
    low, high = lowest.float().to(terms.storage), highest.float().to(terms.storage)
    for factor in terms.later_factors():
        low, _, flushed = product_roundings(low, factor.abs(), terms.storage)
        _, high, _ = product_roundings(high, factor.abs(), terms.storage)
        vanishes = vanishes | flushed
    return Ends(low, high, vanishes).signed(terms.negative)


@ends.register
def _(terms: GatedTerms) -> Ends:
    return gated_ends(terms, activation_interval(terms))


@judged.register
def gated_judged(terms: GatedTerms) -> torch.Tensor:
    """Where gate and up are finite, after the formula's clamps."""
    return torch.isfinite(terms.gate) & torch.isfinite(terms.up)


# --- rounding the ends ------------------------------------------------------------------------------------------------


def to_storage_ends(
    magnitude: torch.Tensor, relative: torch.Tensor | float, absolute: torch.Tensor | float, storage: torch.dtype
) -> Ends:
    """Both ends of magnitude * (1 -+ relative) -+ absolute, through fp32 to `storage`; a subnormal fp32 low end may vanish.

    Through fp32 because the numbers enclosed are fp32 numbers: rounding is monotone, so the ends stay ends.
    """
    slack = magnitude * relative + absolute
    low = torch.clamp(magnitude - slack, min=0.0)
    return Ends(low.float().to(storage), (magnitude + slack).float().to(storage), low < FP32_TINY)


def product_roundings(stored: torch.Tensor, factor: torch.Tensor, storage: torch.dtype) -> Ends:
    """stored * |factor| rounded to `storage`: from the lowest to the highest of rounding once and of rounding through fp32.

    One value where the product is an fp32 number, as that of two 16-bit values is unless it is subnormal: then it may
    vanish. `stored` is a magnitude, `factor` float64 and exact.
    """
    product = stored.double() * factor
    through_fp32 = product.float()
    low = high = through_fp32.to(storage)
    if bool((through_fp32.double() != product).any()):
        once = round_from_f64(product, storage)
        low, high = torch.minimum(low, once), torch.maximum(high, once)
    return Ends(low, high, product < FP32_TINY)

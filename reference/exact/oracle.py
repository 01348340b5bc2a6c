"""The correctly rounded result of every element, under any contract: certain, not merely accurate.

A contract's own roundings (the stored sum, the normalised value, the activation, the fp32 sums that it names) are
applied where it says; everything else is exact, and the end is rounded once. Float64 with proved bounds decides almost
every element; what is left beside a tie is resolved exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatch

import torch

from reference.exact import resolve
from reference.exact.activations import enclose
from reference.exact.bounds import NORM_F64
from reference.exact.terms import GatedTerms, NormTerms, Terms, terms
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors
from reference.rounding import round_from_f64, rounding_interval, ulp_of


@dataclass(frozen=True)
class OracleResult:
    """The right values of one call.

    `outputs`: by name, the correctly rounded tensors in the storage dtype and the call's shape. `unrounded`: by name,
    float64, the value that the last rounding sees, relative error below 2^-44; the contract's inner roundings are in
    it. `elements`: finite values whose rounding had to be decided (the inner one, where a contract has one: the product
    after it is exact). `undecided`: those that float64 could not decide; `resolved`: those of them that exact
    arithmetic then decided, which is all of them, or the call would have raised.
    """

    outputs: Mapping[str, torch.Tensor]
    unrounded: Mapping[str, torch.Tensor]
    elements: int
    undecided: int
    resolved: int


def correctly_rounded(op: str | Operator, inputs: Tensors, contract: Contract) -> OracleResult:
    """`op` under `contract` with every rounding certain. Shapes and dtypes as in `reference.arithmetic.evaluate`.

    fp32 storage has one contract, whatever the code: nothing but the end is rounded. Non-finite inputs: a row
    with a NaN or an Inf that reaches the root, or a product that does, gives what IEEE arithmetic gives (NaN, Inf or
    zero) and is not counted as decided; compare classes there, no more. A finite value that rounds past the largest
    storage value is Inf, and that is right. Sums of squares beyond fp32's range are taken at their true value. Nothing
    is mutated.
    """
    return correctly_rounded_terms(terms(op, inputs, contract))


def correctly_rounded_terms(found: Terms) -> OracleResult:
    """As `correctly_rounded`, of terms that are known already; `Terms.shape` is the call's."""
    rounder = _Rounder(found.storage)
    output, value = _rounded(found, rounder)
    outputs, unrounded = {"output": output.reshape(found.shape)}, {"output": value.reshape(found.shape)}
    for name, (stored, exact) in exact_outputs(found).items():
        outputs[name], unrounded[name] = stored, exact.double()
    return OracleResult(outputs, unrounded, rounder.elements, rounder.undecided, rounder.undecided)


def fractional_ulp_error(candidate: torch.Tensor, result: OracleResult, name: str = "output") -> torch.Tensor:
    """Signed error of `candidate` against the unrounded truth, float64, in ULP of the output dtype.

    The ULP is the spacing of the dtype in the truth's binade. At most 1/2 in magnitude for a correctly rounded value.
    0 where both are the same infinity or both NaN, also where the truth overflows by rounding; NaN where the classes
    differ.
    """
    right, truth = result.outputs[name], result.unrounded[name]
    error = (candidate.double() - truth) / ulp_of(truth, right.dtype)
    both_nan = torch.isnan(candidate) & torch.isnan(right)
    special = ~torch.isfinite(candidate) | ~torch.isfinite(right)
    same = both_nan | (candidate == right)
    return torch.where(special, torch.where(same, 0.0, torch.nan), error)


class _Rounder:
    """Rounds values that are known to lie in intervals, and counts."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.elements = 0
        self.undecided = 0

    def round(
        self, value: torch.Tensor, lowest: torch.Tensor, highest: torch.Tensor, resolve: Callable[[int, int], float]
    ) -> torch.Tensor:
        """`value` rounded; by `resolve(row, column)` where a tie between two neighbours touches [lowest, highest].

        NaN and infinite values pass through. A zero is certain: every value here is zero only if it is exactly, or if
        it underflows float64.
        """
        rounded = round_from_f64(value, self.dtype)
        interval_lowest, interval_highest = rounding_interval(rounded)
        finite = torch.isfinite(value)
        certain = (lowest > interval_lowest) & (highest < interval_highest) | (value == 0)
        doubtful = torch.nonzero(finite & ~certain)
        self.elements += int(finite.sum())
        self.undecided += len(doubtful)
        for row, column in doubtful.tolist():
            rounded[row, column] = resolve(row, column)
        return rounded


@singledispatch
def exact_outputs(found: Terms) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The outputs that have one value in every evaluation: name -> (stored, fp32 before that), in the call's shape."""
    return {}


@exact_outputs.register
def _(found: NormTerms) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    if found.stored_sum is None or found.sum32 is None:
        return {}
    return {"residual": (found.stored_sum, found.sum32)}


@singledispatch
def _rounded(found: Terms, rounder: _Rounder) -> tuple[torch.Tensor, torch.Tensor]:
    """(`output` correctly rounded, the float64 value that the last rounding sees), both (rows, width)."""
    raise NotImplementedError(f"no oracle for {type(found).__name__}")


@_rounded.register
def _(found: NormTerms, rounder: _Rounder) -> tuple[torch.Tensor, torch.Tensor]:
    width = found.hidden.shape[-1]
    squares: dict[int, int] = {}

    def exactly(row: int, column: int, weight: float) -> float:
        if row not in squares:
            squares[row] = resolve.square_sum(found.hidden[row].tolist())
        hidden = found.hidden[row, column].item()
        return resolve.norm_value(hidden, weight, squares[row], width, found.eps, found.storage)

    value = found.hidden * found.rstd
    if found.rounds_norm:
        slack = value.abs() * NORM_F64
        inner = rounder.round(value, value - slack, value + slack, lambda r, c: exactly(r, c, 1.0))
        value = inner.double() * found.weight  # 11 and 24 significant bits: exact
        return round_from_f64(value, found.storage), value
    value = value * found.weight
    slack = value.abs() * NORM_F64
    return rounder.round(value, value - slack, value + slack, lambda r, c: exactly(r, c, found.weight[c].item())), value


@_rounded.register
def _(found: GatedTerms, rounder: _Rounder) -> tuple[torch.Tensor, torch.Tensor]:
    product = found.first_product()
    value = product * found.factor
    low, high = enclose(found.argument, found.factor, found.error, product)
    negative = torch.signbit(product)
    lowest, highest = torch.where(negative, -high, low), torch.where(negative, -low, high)
    # A float64 product may sit on a tie that the true value is just beside.
    value = torch.where(torch.isfinite(value), torch.clamp(value, lowest, highest), value)

    def exactly(row: int, column: int) -> float:
        point, others = found.point[row, column].item(), product[row, column].item()
        return resolve.gated_value(
            lambda gate: found.analysis.to_any_precision(gate, *found.parameters), point, others, found.storage
        )

    output = rounder.round(value, lowest, highest, exactly)
    for factor in found.later_factors():
        value = output.double() * factor  # at most 11 and 24 significant bits: exact
        output = round_from_f64(value, found.storage)
    return output, value

"""The correctly rounded result of every element, under any contract: certain, not merely accurate.

A contract's own roundings (the stored sum, the normalised value, the activation, the fp32 sums that it names) are
applied where it says; everything else is exact, and the end is rounded once. Float64 with proved bounds
(`reference.bounds`) decides almost every element; what is left beside a tie is resolved by `reference.exact`.
Imports torch and this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from reference import exact
from reference.arithmetic import Tensors, eps_in_fp32
from reference.bounds import NORM_F64
from reference.cells import rounding_cell, ulp_of
from reference.contracts import Contract
from reference.operators import Operator, operator
from reference.precise import GatedTerms, NormTerms, enclose, gated_terms, norm_terms
from reference.rounding import round_from_f64


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
    op = operator(op)
    if op.family == "gated":
        return _gated(str(op.activation), gated_terms(op, inputs, contract))
    return _norm(norm_terms(op, inputs, contract), eps_in_fp32(contract))


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
        cell_lowest, cell_highest = rounding_cell(rounded)
        finite = torch.isfinite(value)
        certain = (lowest > cell_lowest) & (highest < cell_highest) | (value == 0)
        doubtful = torch.nonzero(finite & ~certain)
        self.elements += int(finite.sum())
        self.undecided += len(doubtful)
        for row, column in doubtful.tolist():
            rounded[row, column] = resolve(row, column)
        return rounded


def _norm(terms: NormTerms, eps: float) -> OracleResult:
    rounder = _Rounder(terms.storage)
    width = terms.hidden.shape[-1]
    squares: dict[int, int] = {}

    def resolve(row: int, column: int, weight: float) -> float:
        if row not in squares:
            squares[row] = exact.square_sum(terms.hidden[row].tolist())
        hidden = terms.hidden[row, column].item()
        return exact.norm_value(hidden, weight, squares[row], width, eps, terms.storage)

    value = terms.hidden * terms.rstd
    if terms.rounds_norm:
        slack = value.abs() * NORM_F64
        inner = rounder.round(value, value - slack, value + slack, lambda r, c: resolve(r, c, 1.0))
        value = inner.double() * terms.weight  # 11 and 24 significant bits: exact
        output = round_from_f64(value, terms.storage)
    else:
        value = value * terms.weight
        slack = value.abs() * NORM_F64
        output = rounder.round(value, value - slack, value + slack, lambda r, c: resolve(r, c, terms.weight[c].item()))
    outputs = {"output": output.reshape(terms.shape)}
    unrounded = {"output": value.reshape(terms.shape)}
    if terms.stored_sum is not None and terms.sum32 is not None:
        outputs["residual"], unrounded["residual"] = terms.stored_sum, terms.sum32.double()
    return OracleResult(outputs, unrounded, rounder.elements, rounder.undecided, rounder.undecided)


def _gated(name: str, terms: GatedTerms) -> OracleResult:
    rounder = _Rounder(terms.storage)
    other = torch.ones_like(terms.up) if terms.rounds_activation else terms.up
    product = terms.gate * other
    value = product * terms.factor
    low, high = enclose(terms.gate, terms.factor, terms.error, other)
    negative = torch.signbit(product)
    lowest, highest = torch.where(negative, -high, low), torch.where(negative, -low, high)
    # A float64 product may sit on a tie that the true value is just beside.
    value = torch.where(torch.isfinite(value), torch.clamp(value, lowest, highest), value)

    def resolve(row: int, column: int) -> float:
        return exact.gated_value(name, terms.gate[row, column].item(), other[row, column].item(), terms.storage)

    output = rounder.round(value, lowest, highest, resolve)
    if terms.rounds_activation:
        value = output.double() * terms.up  # exact
        output = round_from_f64(value, terms.storage)
    return OracleResult(
        {"output": output.reshape(terms.shape)},
        {"output": value.reshape(terms.shape)},
        rounder.elements,
        rounder.undecided,
        rounder.undecided,
    )

"""What the judging kernels know of an operand's patterns, one entry each: filled by `reference.exact`, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from difftest.exhaustive.domain import PATTERNS, Domain
from difftest.exhaustive.kernels import EXACT, FADES, FINITE, FREE, KIND, KINDS, OPEN_CLASS, SIGN, VANISHES
from difftest.verdict.elements import class_of
from difftest.verdict.gated import settled
from reference.exact.activations import enclose
from reference.exact.attainable import Ends, activation_interval, ends, gated_judged, norm_ends
from reference.exact.bounds import FP32_TINY, U32, U64, product_error
from reference.exact.oracle import correctly_rounded_terms
from reference.exact.terms import GatedTerms, NormTerms, terms
from reference.formats import Format, bits
from reference.operators import Operator
from reference.operators.contract import Contract

FP32_FINITE = 0x7F800000  # patterns of fp32 magnitudes from 0 to the largest
FP32_ONE = 0x3F800000
_Two = tuple[torch.Tensor, torch.Tensor]
BLOCK = 1 << 13  # patterns whose thresholds are looked for together: float64 rows of a few hundred kB


@dataclass(frozen=True, slots=True)
class Tables:
    """The arguments of a judge between its outputs and the slice, in order: 1-D tensors, and numbers."""

    arrays: tuple[torch.Tensor, ...]
    numbers: tuple[float | int, ...] = ()

    def to(self, device: torch.device) -> Tables:
        """On another device."""
        return replace(self, arrays=tuple(array.to(device).contiguous() for array in self.arrays))


def values(patterns: torch.Tensor, storage: Format) -> torch.Tensor:
    """The storage values of int32 patterns."""
    return patterns.to(torch.int16).view(storage.torch)


# --- gated activations ------------------------------------------------------------------------------------------------


def gated(op: Operator, storage: Format, contract: Contract, domain: Domain) -> Tables:
    """numbers, infos, factors, factor_infos, classes: see `kernels.make_gated_judge`."""
    one = torch.ones(1, dtype=storage.torch)
    gates, ups = values(domain.firsts, storage), values(domain.seconds, storage)
    first, second = _terms(op, contract, gates, one), _terms(op, contract, one, ups)
    found = _ends(first, second.bias_rounds)
    numbers = torch.stack((found.low, found.high, *_rights(first), first.gate.abs().flatten()), dim=1)
    numbers = torch.where(torch.isfinite(first.gate), numbers, 0.0)
    _check_apart(numbers, found.exact, rounds=bool(first.later_factors()))
    flags = found.vanishes.int() << VANISHES | found.exact.int() << EXACT | (first.factor < FP32_TINY).flatten().int() << FADES
    infos = _infos(domain.firsts, first.gate) | flags | _free(replace(first, up=torch.ones_like(first.up)))
    factor_infos = _infos(domain.seconds, second.up) | _kinds(second.up) << KIND | _free(second)
    factors = second.up.abs().flatten().nan_to_num(nan=0.0, posinf=0.0)
    return Tables((numbers.flatten(), infos, factors, factor_infos, _classes(op, storage, contract, gates)))


def _terms(op: Operator, contract: Contract, gates: torch.Tensor, ups: torch.Tensor) -> GatedTerms:
    """The terms of a call of rows of one element; either operand may be a single value."""
    count = max(len(gates), len(ups))
    found = terms(op, op.assemble({"gate": gates.expand(count)[:, None], "up": ups.expand(count)[:, None]}), contract)
    assert isinstance(found, GatedTerms)
    return found


def _alone(first: GatedTerms) -> GatedTerms:
    """What is left where the last factor is 1."""
    return replace(first, up=torch.ones_like(first.up))


class _Found(NamedTuple):
    """(n,): ends of what the last factor multiplies, float64 magnitudes; whether 0 is in its set; whether the high end is the
    gate itself, which takes no error where fp32 holds gate * up."""

    low: torch.Tensor
    high: torch.Tensor
    vanishes: torch.Tensor
    exact: torch.Tensor


def _ends(first: GatedTerms, bias_rounds: bool) -> _Found:
    """The set of what the last factor multiplies: its own rounding error included, unless it is rounded to storage before."""
    if first.later_factors():
        low, high, vanishes = (each.flatten() for each in ends(_alone(first)))
        low, high = low.double().abs(), high.double().abs()
        return _Found(torch.minimum(low, high), torch.maximum(low, high), vanishes, torch.zeros_like(vanishes))
    low, high, vanishes = (each.flatten() for each in activation_interval(first))
    error = product_error(1, bias_rounds)
    exact = (high == first.gate.abs().flatten()) & (not bias_rounds)
    return _Found(low * (1.0 - error), torch.where(exact, high, high * (1.0 + error)), vanishes, exact)


def _rights(first: GatedTerms) -> _Two:
    """Magnitudes, float64: what the last factor multiplies, between certain ends; one value where it is rounded to storage."""
    if first.later_factors():
        exact = correctly_rounded_terms(_alone(first)).outputs["output"].double().abs().flatten()
        return exact, exact
    # 2 U64: the kernel's own float64 product. No tie is moved over: see `enclose`, whose ends are next to the exact half and
    # whole; times a factor of 24 digits at most they stay strictly on their side of its multiples, which have 35.
    low, high = enclose(first.argument, first.factor, first.error + 2 * U64, first.gate)
    return low.flatten(), high.flatten()


def _check_apart(numbers: torch.Tensor, exact: torch.Tensor, *, rounds: bool) -> None:
    """Raises where the right value may be none that is attainable, which the judge takes for granted of normal numbers.

    Rounding through fp32 moves an end by U32 of itself at most, the right value not at all: the ends must be as far beyond it,
    unless they are rounded both ways (`rounds`) or not at all (`exact`).
    """
    low, high, low_right, high_right, _ = numbers.unbind(dim=1)
    room = 1.0 if rounds else 1.0 + 2 * U32
    below, above = low * room <= low_right, high_right * torch.where(exact, 1.0, room) <= high
    if not bool((below & above).all()):
        raise AssertionError("the attainable interval of an activation does not hold its right value")


def _infos(patterns: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Pattern, sign and finiteness of values (n, 1), int32 (n,)."""
    flags = torch.signbit(value).int() << SIGN | torch.isfinite(value).int() << FINITE
    return (patterns | flags.flatten()).int()


def _free(found: GatedTerms) -> torch.Tensor:
    """Whether the sign of a zero is free, whatever the other operand, int32 (n,)."""
    return found.sign_is_free().flatten().int() << FREE


def _kinds(up: torch.Tensor) -> torch.Tensor:
    """Which column of `classes` a factor has, int32: 0 zero, 1 and 2 finite, 3 and 4 infinite, positive and negative; 5 NaN."""
    negative = (up < 0).int()
    found = torch.where(up == 0, 0, 1 + negative)
    found = torch.where(torch.isinf(up), 3 + negative, found)
    return torch.where(torch.isnan(up), 5, found).flatten().int()


def _classes(op: Operator, storage: Format, contract: Contract, gates: torch.Tensor) -> torch.Tensor:
    """The class that an output must be of, by first pattern and kind of factor, int8; OPEN_CLASS where it may be any."""
    every = values(torch.arange(PATTERNS, dtype=torch.int32), storage)
    kinds = _kinds(_terms(op, contract, torch.ones(1, dtype=storage.torch), every).up)
    table = torch.full((len(gates), KINDS), OPEN_CLASS, dtype=torch.int8)
    for kind in kinds.unique().tolist():
        member = every[int((kinds == kind).int().argmax())].reshape(1)
        found = _terms(op, contract, gates, member)
        expected = torch.where(settled(found) & ~gated_judged(found), class_of(found.unrounded()), OPEN_CLASS)
        table[:, kind] = expected.flatten().to(torch.int8)
    return table.flatten()


# --- norms of one element ---------------------------------------------------------------------------------------------


def norm(op: Operator, storage: Format, contract: Contract, domain: Domain) -> Tables:
    """firsts, seconds, least, most, rights; small, large, last, free_below, free_from: see `kernels.make_norm_judge`.

    All are looked for by halving over the fp32 magnitudes: the ends and the right value grow with |h|, and 0 is in the set below
    one magnitude and from another on.
    """
    rows = _Norm(op, storage, contract)
    one = torch.tensor([FP32_ONE])
    small = rows.first(lambda size: ~rows.ends(size).vanishes.flatten(), torch.zeros_like(one))
    large = rows.first(lambda size: rows.ends(size).vanishes.flatten(), one)
    outputs = values(torch.arange(1 << 15, dtype=torch.int32), storage).double()
    found = [_thresholds(rows, wanted) for wanted in outputs.split(BLOCK)]
    least, most, rights = (torch.cat(parts) for parts in zip(*found, strict=True))
    nothing = torch.tensor([FP32_FINITE])
    last, first_of_last = (int(bits(rows.right(size))) for size in (nothing - 1, large))
    assert last == first_of_last, "where squares leave fp32, all rows have one right output"
    # `least` is Inf of a pattern that nothing gives, and of a NaN's.
    as_numbers = tuple(_values(each) for each in (least, most, torch.cat([rights, nothing])))
    free_below = rows.first(lambda size: ~rows.at(size).sign_is_free().flatten(), torch.zeros_like(one))
    free_from = rows.first(lambda size: rows.at(size).sign_is_free().flatten(), one)
    ranges = [float(_values(each)) for each in (small, large, free_below, free_from)]
    return Tables((domain.firsts, domain.seconds, *as_numbers), (*ranges[:2], last, *ranges[2:]))


def _thresholds(rows: _Norm, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """least, most and right of the outputs `wanted`, as fp32 patterns."""
    start = torch.zeros(len(wanted), dtype=torch.int64)
    least = rows.first(lambda size: rows.ends(size).highest.flatten().double() >= wanted, start)
    beyond = rows.first(lambda size: rows.ends(size).lowest.flatten().double() > wanted, start)
    return least, beyond - 1, rows.first(lambda size: rows.right(size).double() >= wanted, start)


def _values(patterns: torch.Tensor) -> torch.Tensor:
    """The fp32 values of patterns."""
    return patterns.to(torch.int32).view(torch.float32)


class _Norm:
    """Rows of one element, by the fp32 pattern of the magnitude that is normalised, int64 (n,)."""

    def __init__(self, op: Operator, storage: Format, contract: Contract) -> None:
        ones = {name: torch.ones(1, 1, dtype=storage.torch) for name in op.rows}
        vectors = {name: torch.ones(1, dtype=storage.torch) for name in op.vectors}
        made = terms(op, {**ones, **vectors}, contract)
        assert isinstance(made, NormTerms)
        self.made = made

    def at(self, size: torch.Tensor) -> NormTerms:
        hidden = _values(size).double()[:, None]
        mean_square = hidden.square()
        shifted = mean_square + self.made.eps
        return replace(
            self.made,
            shape=hidden.shape,
            sum32=None,
            stored_sum=None,
            hidden=hidden,
            mean_square=mean_square,
            shifted=shifted,
            rstd=1.0 / torch.sqrt(shifted),
            finite=torch.ones_like(hidden, dtype=torch.bool),
        )

    def ends(self, size: torch.Tensor) -> Ends:
        return norm_ends(self.at(size))

    def right(self, size: torch.Tensor) -> torch.Tensor:
        return correctly_rounded_terms(self.at(size)).outputs["output"].flatten()

    @staticmethod
    def first(holds: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor) -> torch.Tensor:
        """The least magnitude, from `start` on, at which `holds` does, for each; FP32_FINITE where none: `holds` is monotone."""
        low, high = start, torch.full_like(start, FP32_FINITE)
        while bool((low < high).any()):
            middle = (low + high) >> 1
            true = holds(torch.clamp(middle, max=FP32_FINITE - 1)) & (middle < FP32_FINITE)
            high, low = torch.where(true, middle, high), torch.where(true, low, torch.minimum(middle + 1, high))
        return high

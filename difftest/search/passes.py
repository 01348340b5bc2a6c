"""The passes of the shrinker, one class a kind of value: rows, width, layout, elements, numbers.

Each tries simpler examples in place of the current one, the simplest first, and keeps what still fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Protocol

import torch

from difftest.cases.case import Case
from difftest.search.example import Example
from reference.contracts import contract

FEW = 8  # numbers of rows that are tried one by one, from 1 up, ahead of powers of two
EVERY_START = 1024  # rows among which each is tried alone
MOST_VALUES = 8  # different values of a tensor that are made simpler one at a time


class Trial(Protocol):
    """What a pass has in hand: the current example, and whether another may take its place."""

    current: Example

    def consider(self, example: Example) -> bool:
        """Whether the example is simpler than the current one and still fails; it is then the current one."""

    def consider_in_turn(self, examples: Iterable[Example]) -> int | None:
        """The place of the first of these that is simpler and still fails, which is then the current one; None where none does.
        They are made before it is known what becomes of any."""


class Pass(Protocol):
    """One kind of value, made simpler."""

    def shrink(self, trial: Trial) -> None:
        """Tries simpler examples in place of the current one, until it has none left."""


class Rows:
    """The shape before the row, axis by axis: a stretch of 1, 2, 3 ... entries; then what any chunk leaves out."""

    def shrink(self, trial: Trial) -> None:
        for axis in range(len(trial.current.case.lead)):
            self._stretches(trial, axis)
            self._chunks(trial, axis)

    def _stretches(self, trial: Trial, axis: int) -> None:
        """The shortest stretch that fails: of one entry every one, of more those at the start and at the end."""
        entries = trial.current.case.lead[axis]
        for count in _counts(entries):
            starts = range(min(entries, EVERY_START)) if count == 1 else (0, entries - count)
            if any(trial.consider(trial.current.with_rows(axis, torch.arange(s, s + count))) for s in starts):
                return

    def _chunks(self, trial: Trial, axis: int) -> None:
        """Leaves out chunks, half of the entries first, then ever smaller ones, down to one entry."""
        size = trial.current.case.lead[axis] // 2
        while size:
            start = 0
            while start < (entries := trial.current.case.lead[axis]) > 1:
                kept = torch.cat((torch.arange(start), torch.arange(min(start + size, entries), entries)))
                if not (len(kept) and trial.consider(trial.current.with_rows(axis, kept))):
                    start += size
            size //= 2


class Width:
    """The width: every smaller one, from 1 up, so that what is left is the smallest that fails with such values.

    The columns that hold anything but plain values stay as long as there is room, in their order, filled up with the first of
    the others.
    """

    def shrink(self, trial: Trial) -> None:
        odd = _odd_columns(trial.current)
        by_need = torch.cat((odd.nonzero().flatten(), (~odd).nonzero().flatten()))
        current = trial.current
        trial.consider_in_turn(current.with_columns(by_need[:w].sort().values) for w in range(1, current.case.width))


class Layout:
    """Where the tensors lie: all plain at once, then each oddity on its own."""

    def shrink(self, trial: Trial) -> None:
        for plainer in (self._plain, self._matrix, self._aligned, self._without_out, self._contiguous):
            for case in plainer(trial.current.case):
                trial.consider(trial.current.with_case(case))

    def _plain(self, case: Case) -> Iterator[Case]:
        yield replace(case.plain(), lead=(case.rows,))

    def _matrix(self, case: Case) -> Iterator[Case]:
        yield replace(case, lead=(case.rows,))

    def _aligned(self, case: Case) -> Iterator[Case]:
        yield replace(case, misaligned=())
        for name in case.misaligned:
            yield replace(case, misaligned=tuple(each for each in case.misaligned if each != name))

    def _without_out(self, case: Case) -> Iterator[Case]:
        """No `out`, and what lay in its buffer's own way with it."""
        kept = tuple(each for each in case.padding if each[0] != "output")
        yield replace(case, out="none", padding=kept, misaligned=tuple(n for n in case.misaligned if n != "output"))

    def _contiguous(self, case: Case) -> Iterator[Case]:
        yield replace(case, padding=())
        for dropped in case.padding:
            yield replace(case, padding=tuple(each for each in case.padding if each != dropped))
        for at, (name, elements) in enumerate(case.padding):
            for fewer in _counts(elements):
                yield replace(case, padding=(*case.padding[:at], (name, fewer), *case.padding[at + 1 :]))


class Elements:
    """The values of each tensor: all plain, or of a simpler form; plain in chunks; then what is left, value by value."""

    def shrink(self, trial: Trial) -> None:
        for role in trial.current.values:
            self._whole(trial, role)
            self._chunks(trial, role)
            self._singly(trial, role)

    def _whole(self, trial: Trial, role: str) -> None:
        values = trial.current.values[role]
        plain = torch.full_like(values, trial.current.plain_value(role))
        for simpler in (plain, _power_of_two(values).abs(), values.abs(), _power_of_two(values)):
            if trial.consider(trial.current.with_values(role, simpler)):
                return

    def _chunks(self, trial: Trial, role: str) -> None:
        """The plain value in place of what is not plain, half of it first, then ever smaller chunks."""
        size = -(-len(self._odd(trial, role)) // 2)
        while size:
            start, odd = 0, self._odd(trial, role)
            while start < len(odd):
                chunks = (odd[s : s + size] for s in range(start, len(odd), size))
                place = trial.consider_in_turn(map(partial(_with_plain, trial.current, role), chunks))
                start = len(odd) if place is None else start + (place + 1) * size
            size //= 2

    def _singly(self, trial: Trial, role: str) -> None:
        """Each value that is left, everywhere that it stands."""
        for value in trial.current.values[role].flatten()[self._odd(trial, role)].unique()[:MOST_VALUES]:
            for simpler in _simpler(value):
                values = trial.current.values[role]
                if trial.consider(trial.current.with_values(role, torch.where(values == value, simpler, values))):
                    break

    @staticmethod
    def _odd(trial: Trial, role: str) -> torch.Tensor:
        """The places of what is not plain."""
        return (trial.current.values[role].flatten() != trial.current.plain_value(role)).nonzero().flatten()


class Numbers:
    """The call's parameters at their usual values, and the weight in the rows' format."""

    def shrink(self, trial: Trial) -> None:
        case = trial.current.case
        usual = contract(case.operator)
        for name in [p.name for p in case.operator.parameters]:
            held_to = trial.current.case.contract.with_values({name: usual.value(name)})
            trial.consider(trial.current.with_case(replace(trial.current.case, contract=held_to)))
        trial.consider(trial.current.with_case(replace(trial.current.case, weight_dtype=None)))


def _with_plain(example: Example, role: str, places: torch.Tensor) -> Example:
    """The plain value at those places of a role."""
    values = example.values[role].flatten().clone()
    values[places] = example.plain_value(role)
    return example.with_values(role, values.reshape(example.values[role].shape))


def _counts(most: int) -> list[int]:
    """Numbers below `most`: the first few, then powers of two."""
    powers = [1 << k for k in range(FEW.bit_length(), most.bit_length() + 1)]
    return [n for n in (*range(1, FEW + 1), *powers) if n < most]


def _odd_columns(example: Example) -> torch.Tensor:
    """Mask over the columns: those in which some tensor has another value than the plain one."""
    found = torch.zeros(example.case.width, dtype=torch.bool)
    for role, values in example.values.items():
        found |= (values != example.plain_value(role)).reshape(-1, example.case.width).any(0)
    return found


def _power_of_two(values: torch.Tensor) -> torch.Tensor:
    """The sign and the binade of each value, its significand 1; zeros, Inf and NaN as they are."""
    wide = values.double()
    kept = torch.isfinite(wide) & (wide != 0)
    exponent = torch.frexp(torch.where(kept, wide, 1.0)).exponent - 1
    return torch.where(kept, torch.sign(wide) * torch.exp2(exponent.double()), wide).to(values.dtype)


def _simpler(value: torch.Tensor) -> list[torch.Tensor]:
    """Simpler values than this one, the simplest first: powers of two near 1, of its own binade, fewer bits, no sign."""
    wide = value.double()
    if not torch.isfinite(wide) or not wide:
        return [value.abs()]
    mantissa, exponent = torch.frexp(wide.abs())
    nearer = [torch.exp2((exponent - 1).double() * share) for share in (0.0, 0.5, 0.75, 0.9)]
    shorter = [torch.ldexp(torch.ceil(mantissa * 2**bits) / 2**bits, exponent) for bits in (1, 2, 3, 5, 8)]
    found = [torch.exp2(torch.log2(each).round()) for each in nearer]
    found += [torch.exp2((exponent - 1).double()), *shorter, wide.abs()]
    return [each.to(value.dtype) for signed in (1.0, -1.0) for each in (signed * f for f in found)]

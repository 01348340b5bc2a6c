"""Do the same rows give the same bits, in a second call and in a call of fewer rows? And which of a run's cases are asked.

A change of bits may stay inside fp32 rounding, where no verdict sees it. Outputs that have other bits than the first call's,
which was judged, are judged themselves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from difftest.cases.case import Case
from difftest.run.buffers import spans_overlap
from difftest.run.call import Called, Tensors, call
from difftest.run.perform import Performer, differing
from difftest.verdict import judge
from difftest.wording import counted

ONE_IN = 16
WIDE = 4096


@dataclass(frozen=True, slots=True)
class Stability:
    """What the further calls of a case showed.

    `changing`: elements with other bits in a second call. `batch_elements`, in `batch_rows` rows: elements with other
    bits in a call of `parts`, ranges of the case's rows. `reasons` are differences, `remarks` are none; `batch_invariant`
    says which of the two a batch's influence is. `calls`: how often the candidate was called. `notes`: what it did beside.
    """

    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    changing: int = 0
    batch_elements: int = 0
    batch_rows: int = 0
    parts: tuple[range, ...] = ()
    batch_invariant: bool = False
    calls: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the reasons and remarks; a part is its first row and its number of rows."""
        return {
            "changing": self.changing,
            "batch_elements": self.batch_elements,
            "batch_rows": self.batch_rows,
            "parts": [[part.start, len(part)] for part in self.parts],
            "batch_invariant": self.batch_invariant,
        }


def chosen(cases: Sequence[Case]) -> frozenset[int]:
    """Which cases of a run to call again, by index: about one in sixteen, and one of several wide rows in each group.

    A group is an operator and dtype; wide is 4096 or more, or the widest there is. Whether a case is among the eighth is
    a function of the case alone, so the command that runs it again chooses it too.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for index, case in enumerate(cases):
        groups.setdefault((case.op, case.dtype), []).append(index)
    found: set[int] = set()
    for members in groups.values():
        found.update(index for index in members if random.Random(cases[index].seed).randrange(ONE_IN) == 0)
        several = [index for index in members if cases[index].rows > 1]
        least = min(WIDE, max((cases[index].width for index in several), default=0))
        wide = [index for index in several if cases[index].width >= least]
        if wide and found.isdisjoint(wide):
            found.add(wide[0])
    return frozenset(found)


def parts(case: Case) -> tuple[range, ...]:
    """The rows to call on their own: the first or the last, by the case's seed, and all others. None of a single row."""
    rows = case.rows
    if rows < 2:
        return ()
    if random.Random(f"{case.seed}/parts").randrange(2):
        return range(1), range(1, rows)
    return range(rows - 1, rows), range(rows - 1)


def check(case: Case, function: Callable | Performer, inputs: Tensors, first: Called, batch_invariant: bool) -> Stability:
    """Calls the candidate again, on copies of the same inputs in the same layout, then on parts of the rows.

    `first` is the call that all are compared with. A candidate that changes from
    run to run is not asked about batches: the answer would mean nothing. Nor is one whose next call writes into the result
    of the last, which is let go of here.
    """
    second = call(case, function, inputs)
    reasons = [] if first.faults else [f"in a second call: {fault}" for fault in second.faults]
    reasons += _overwritten(first, second)
    first.returned = second.returned = None
    changing = 0
    if second.outputs:
        changed = {name: _changed(first.outputs[name], second.outputs[name], case.width) for name in first.outputs}
        changing = sum(int(mask.sum()) for mask in changed.values())
        if changing:
            name, row, column = _first(changed)
            values = (_value(called.outputs[name], row, column, case.width) for called in (first, second))
            there = f"{name}, row {row}, column {column} is {next(values)}, then {next(values)}"
            reasons.insert(0, f"changes from run to run: {counted(changing, 'element')}; {there}")
    if reasons:
        notes = tuple(second.notes)
        return Stability(tuple(reasons), changing=changing, batch_invariant=batch_invariant, calls=1, notes=notes)
    return _check_parts(case, function, inputs, first, second.notes, batch_invariant)


def _overwritten(first: Called, second: Called) -> list[str]:
    """Did the second call write into the tensor that the first returned, or return the same memory?"""
    if first.returned is None:
        return []
    said = "the result of one call is overwritten by the next"
    count = int(differing(first.returned.now(), first.outputs["output"]).sum())
    if count:
        return [f"{said}: {counted(count, 'element')} of it changed"]
    if second.returned is not None and spans_overlap(first.returned.span, second.returned.span):
        return [f"{said}: both are in the same memory"]
    return []


def _check_parts(
    case: Case,
    function: Callable | Performer,
    inputs: Tensors,
    first: Called,
    notes: Sequence[str],
    batch_invariant: bool,
) -> Stability:
    reasons: list[str] = []
    noted = list(notes)
    remarks: list[str] = []
    changed = {name: torch.zeros_like(_rows(whole, case.width), dtype=torch.bool) for name, whole in first.outputs.items()}
    said = ""
    asked = parts(case)
    for part in asked:
        what = f"row {part.start}" if len(part) == 1 else f"rows {part.start} to {part.stop - 1}"
        own = slice(part.start, part.stop)
        given = {k: v if k in case.operator.vectors else _rows(v, v.shape[-1])[own] for k, v in inputs.items()}
        alone = call(replace(case, lead=(len(part),)), function, given)
        noted += alone.notes
        if not first.faults:
            (remarks if alone.refused else reasons).extend(f"{what} alone: {fault}" for fault in alone.faults)
        if not alone.outputs:
            continue
        masks = {n: _changed(_rows(o, case.width)[own], alone.outputs[n], case.width) for n, o in first.outputs.items()}
        if not said and any(bool(mask.any()) for mask in masks.values()):
            name, row, column = _first(masks)
            whole = _value(first.outputs[name], part.start + row, column, case.width)
            lone = _value(alone.outputs[name], row, column, case.width)
            said = f"{name}, row {part.start + row}, column {column} is {whole} among {case.rows} rows, {lone} in {what} alone"
        if any(bool(mask.any()) for mask in masks.values()):
            wrong = judge(case.operator, given, alone.outputs, case.contract).reasons
            reasons += [f"{what} alone: {reason}" for reason in wrong]
        for name, mask in masks.items():
            changed[name][own] |= mask
    elements = sum(int(mask.sum()) for mask in changed.values())
    rows = int(torch.stack([mask.any(1) for mask in changed.values()]).any(0).sum())
    if elements:
        text = f"depends on the batch: {counted(elements, 'element')} of {counted(rows, 'row')}; {said}"
        (reasons if batch_invariant else remarks).insert(0, text)
    said_of = tuple(reasons), tuple(remarks)
    return Stability(*said_of, 0, elements, rows, asked, batch_invariant, 1 + len(asked), tuple(noted))


def _rows(tensor: torch.Tensor, length: int) -> torch.Tensor:
    return tensor.reshape(-1, length)


def _changed(one: torch.Tensor, other: torch.Tensor, width: int) -> torch.Tensor:
    """Mask over rows x width: other bits, except NaN for NaN."""
    return differing(_rows(one, width), _rows(other, width))


def _first(changed: dict[str, torch.Tensor]) -> tuple[str, int, int]:
    """The first element that changed: the name of its output, its row and its column."""
    name, mask = next((name, mask) for name, mask in changed.items() if bool(mask.any()))
    row, column = mask.nonzero()[0].tolist()
    return name, row, column


def _value(tensor: torch.Tensor, row: int, column: int, width: int) -> str:
    return f"{_rows(tensor, width)[row, column].item():.9g}"

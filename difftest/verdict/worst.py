"""The worst element of a comparison: both values, its inputs, and where both stand to the correctly rounded value, its row around
it included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from difftest.verdict import ulp
from reference.exact.oracle import correctly_rounded
from reference.formats import hex_bits
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors

AROUND = 4  # columns shown on each side


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the worst element's row: both values and the correctly rounded one, each with its bits."""

    column: int
    actual: str
    expected: str
    right: str


@dataclass(frozen=True, slots=True)
class Truth:
    """The correctly rounded value at an element, under the contract that the candidate is held to.

    `actual` and `expected`: how far each side is from it, in ULP, or the name of a class mismatch. `row`: the columns around.
    """

    right: str
    actual: int | str
    expected: int | str
    row: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Element:
    """One element of the output: where, what each side has (value and bits), how far apart, and its inputs' bits."""

    index: tuple[int, ...]
    actual: str
    expected: str
    apart: str  # "+3 ULP", or the name of a class mismatch
    inputs: dict[str, str]
    truth: Truth | None = None


def worst(
    found: ulp.Distance, actual: torch.Tensor, expected: torch.Tensor, inputs: Mapping[str, torch.Tensor]
) -> Element | None:
    """A class mismatch if there is one, else the element of the largest distance; None where all agree."""
    if not actual.numel():
        return None
    weight = torch.where(found.comparable, found.ulp.abs(), torch.iinfo(torch.int64).max)
    flat = int(weight.argmax())
    if not int(weight.flatten()[flat]):
        return None
    width = actual.shape[-1]
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), actual.shape))
    off = _off(found, flat)
    apart = off if isinstance(off, str) else f"{off:+d} ULP"
    return Element(index, _shown(actual, flat), _shown(expected, flat), apart, _inputs_at(inputs, flat, width))


def with_truth(
    element: Element, name: str, sides: Sequence[torch.Tensor], op: Operator, inputs: Tensors, contract: Contract
) -> Element:
    """The element with its truth. `sides`: the output `name` of candidate and reference; `inputs`: as before the call."""
    width = sides[0].shape[-1]
    row, column = divmod(_flat(element.index, sides[0].shape), width)
    alone = {key: (each if key in op.vectors else _row(each, row)).cpu() for key, each in inputs.items()}
    right = correctly_rounded(op, alone, contract).outputs[name].reshape(-1)
    actual, expected = (_row(side, row).reshape(-1).cpu() for side in sides)
    columns = range(max(0, column - AROUND), min(width, column + AROUND + 1))
    around = tuple(Column(each, _shown(actual, each), _shown(expected, each), _shown(right, each)) for each in columns)
    off_actual, off_expected = (_off(ulp.distance(side, right), column) for side in (actual, expected))
    return replace(element, truth=Truth(_shown(right, column), off_actual, off_expected, around))


def _row(tensor: torch.Tensor, row: int) -> torch.Tensor:
    """One row of a tensor of rows, as a tensor of one row."""
    return tensor.reshape(-1, tensor.shape[-1])[row : row + 1]


def _off(found: ulp.Distance, flat: int) -> int | str:
    """The distance at an element, or the name of its class mismatch."""
    for name, mask in found.classes.items():
        if bool(mask.flatten()[flat]):
            return name
    return int(found.ulp.flatten()[flat])


def _flat(index: tuple[int, ...], shape: torch.Size) -> int:
    flat = 0
    for place, size in zip(index, shape, strict=True):
        flat = flat * size + place
    return flat


def _inputs_at(inputs: Mapping[str, torch.Tensor], flat: int, width: int) -> dict[str, str]:
    """The inputs' values at an output's element: of rows as many as the output's, or of one vector for all of them."""
    return {name: _shown(tensor, flat if tensor.numel() > width else flat % width) for name, tensor in inputs.items()}


def _shown(tensor: torch.Tensor, flat: int) -> str:
    value = tensor.reshape(-1)[flat]
    return f"{value.item():.9g} ({hex_bits(value)})"

"""The worst pairs in full, from their keys: operands, output, right and attainable values, each with its bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from difftest.exhaustive.domain import Domain
from difftest.exhaustive.slots import unpack
from difftest.exhaustive.tables import values
from difftest.verdict.ulp import distance
from reference.exact.attainable import attainable
from reference.exact.oracle import correctly_rounded
from reference.formats import FORMATS, Format, hex_bits
from reference.operators import Operator, operator
from reference.operators.contract import Contract


def call_of(op: Operator, storage: Format, first: int, seconds: torch.Tensor) -> dict[str, torch.Tensor]:
    """The tensors of a call that pairs one pattern with each of `seconds`, in a row or in rows of one element; weights are 1.

    With all of them, because what a bound is may depend on all that a call holds (a constant that rounds somewhere).
    """
    shape = (1, len(seconds)) if op.activation else (len(seconds), 1)
    patterns = (torch.full(shape, first, dtype=torch.int32), seconds.reshape(shape))
    vectors = {name: torch.ones(1, dtype=storage.torch) for name in op.vectors}
    return op.assemble(dict(zip(op.roles, (values(each, storage) for each in patterns), strict=True)) | vectors)


def worst_pairs(op: str, dtype: str, contract: Contract, domain: Domain, keys: Sequence[int]) -> list[dict[str, Any]]:
    """A record for each key: `wrong`, the operands by role, `output`, `right`, `lowest` and `highest` attainable, and `apart`."""
    return [_record(operator(op), FORMATS[dtype], contract, domain, *unpack(key)) for key in keys]


def _record(
    op: Operator, storage: Format, contract: Contract, domain: Domain, wrong: bool, first: int, second: int, got: int
) -> dict[str, Any]:
    place = int((domain.seconds == second).int().argmax())
    ends = attainable(op, call_of(op, storage, first, domain.seconds), contract)
    alone = call_of(op, storage, first, domain.seconds[place : place + 1])
    right = correctly_rounded(op, alone, contract).outputs["output"]
    output = values(torch.tensor([[got]], dtype=torch.int32), storage)
    found = distance(output, right)
    apart = next((name for name, mask in found.classes.items() if bool(mask)), f"{int(found.ulp):+d} ULP")
    operands = values(torch.tensor([first, second], dtype=torch.int32), storage)
    return {
        "wrong": wrong,
        **{role: _shown(value) for role, value in zip(op.roles, operands, strict=True)},
        "output": _shown(output),
        "right": _shown(right),
        "lowest": _shown(ends.lowest().flatten()[place]),
        "highest": _shown(ends.highest().flatten()[place]),
        "apart": apart,
    }


def _shown(value: torch.Tensor) -> str:
    return f"{value.reshape(-1)[0].item():.9g} ({hex_bits(value.reshape(-1)[0])})"

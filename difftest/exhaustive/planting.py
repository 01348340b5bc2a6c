"""One wrong output put in at random, the nearest to what is attainable: whether it is found is what a pass is worth."""

from __future__ import annotations

import torch

from difftest.exhaustive.domain import Domain
from difftest.exhaustive.slots import unpack
from difftest.exhaustive.sweep import Planted
from difftest.exhaustive.tally import Tally
from difftest.exhaustive.worst import call_of
from difftest.verdict.ulp import ordered
from reference.exact.attainable import attainable
from reference.formats import FORMATS
from reference.operators import operator
from reference.operators.contract import Contract


def draw(op: str, dtype: str, contract: Contract, domain: Domain, seed: int) -> Planted:
    """A pair whose output is bounded, and the value next to its highest or lowest attainable one."""
    generator = torch.Generator().manual_seed(seed)

    def below(most: int) -> int:
        return int(torch.randint(most, (1,), generator=generator))

    while True:
        row, column = below(len(domain.firsts)), below(len(domain.seconds))
        inputs = call_of(operator(op), FORMATS[dtype], int(domain.firsts[row]), domain.seconds)
        ends = attainable(op, inputs, contract)
        if bool(ends.judged["output"].flatten()[column]):
            step = 2 * below(2) - 1
            end = ends.highest() if step > 0 else ends.lowest()
            place = int(ordered(end.flatten()[column])) + step
            return Planted(row, column, place if place >= 0 else 0x8000 - place)


def caught(domain: Domain, planted: Planted, found: Tally) -> bool:
    """Whether a pass over a candidate that is right, but for the planted output, says so: it is wrong, and nothing else is."""
    first, second = int(domain.firsts[planted.row]), int(domain.seconds[planted.column])
    return found.wrong == 1 and unpack(found.worst[0]) == (True, first, second, planted.pattern)


def describe(domain: Domain, planted: Planted) -> dict[str, str]:
    """The operands' patterns and the output's."""
    first, second = int(domain.firsts[planted.row]), int(domain.seconds[planted.column])
    return {"first": f"0x{first:04x}", "second": f"0x{second:04x}", "output": f"0x{planted.pattern:04x}"}

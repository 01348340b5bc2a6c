"""One candidate over the pairs of one operator, dtype and contract: a slice at a time made, called and judged on its device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from difftest.exhaustive import kernels, launch, tables
from difftest.exhaustive.domain import Domain, Slice
from difftest.exhaustive.tally import Tally
from difftest.run.perform import BadOutput, invoke, takes_out
from reference.formats import FORMATS, bits
from reference.operators import Operator, operator
from reference.operators.contract import Contract
from reference.operators.declaration import Role


@dataclass(frozen=True, slots=True)
class Planted:
    """An output to be put in the place of a right one: the pair's places in the domain, and the pattern."""

    row: int
    column: int
    pattern: int

    def within(self, part: Slice) -> bool:
        """Whether the slice has the pair."""
        return 0 <= self.row - part.row < part.rows and 0 <= self.column - part.column < part.columns


class Sweep:
    """Buffers, tables and tally of a pass. `step` takes it a slice on; `read` says what was found since `clear`."""

    def __init__(self, op: str, dtype: str, contract: Contract, function: Callable, domain: Domain, device: torch.device) -> None:
        self.op, self.contract, self.function, self.domain, self.device = operator(op), contract, function, domain, device
        storage = FORMATS[dtype]
        self.interleaved = self.op.tensors[0].role is Role.PAIRS
        rows, width = domain.rows, domain.width
        made = tables.gated if self.op.activation else tables.norm
        self.tables = made(self.op, storage, contract, domain).to(device)
        self.firsts, self.seconds = (each.to(device).contiguous() for each in (domain.firsts, domain.seconds))
        if self.op.activation:
            self.judge = launch.gated_judge(dtype, contract.rounds_activation)
            lead, length = (rows,), width
            names = self.op.rows
        else:
            self.judge = launch.norm_judge(dtype, contract.rounds_sum)
            lead, length = (rows * width,), 1
            names = self.op.rows
        new = {name: torch.empty(*lead, self.op.row_length(name, length), dtype=storage.torch, device=device) for name in names}
        self.tensors = {**new, **{name: torch.ones(1, dtype=storage.torch, device=device) for name in self.op.vectors}}
        self.shape = (*lead, length)
        self.out: torch.Tensor | None = None
        if not self.op.mutated and takes_out(function):
            self.out = torch.empty(self.shape, dtype=storage.torch, device=device)
            launch.words(self.out).fill_(kernels.POISON)
        self.counts, self.worst = launch.new_tally(rows, width, device)
        first, *others = (launch.words(self.tensors[name]) for name in self.op.rows)
        self.stride = first.numel() // rows  # words from row to row
        # Both operands in one tensor stand side by side, or one after the other.
        self.places = first, others[0] if others else first[self.stride // 2 :]

    def step(self, part: Slice, planted: Planted | None = None) -> None:
        """One slice: inputs, the call, the verdict. BadOutput for what is no output; whatever the candidate raises."""
        self._make(part)
        more = {} if self.out is None else {"out": self.out}
        returned = invoke(self.op, self.function, self.tensors, self.contract, **more)
        outputs = self._outputs(returned)
        if planted and planted.within(part):
            place = (planted.row - part.row) * part.columns + planted.column - part.column
            bits(outputs[0]).view(-1)[place] = planted.pattern - (planted.pattern >> 15 << 16)
        place_of = (part.row, part.column, part.columns)
        grid = launch.judge_grid(part.rows, part.columns)
        known = (*self.tables.arrays, *self.tables.numbers)
        self.judge.launch(self.device, grid, *map(launch.words, outputs), *known, *place_of, self.counts, self.worst)

    def read(self) -> Tally:
        """What was found since `clear`; waits for the device."""
        return Tally.read(self.counts, self.worst)

    def clear(self) -> None:
        """Forgets what was found."""
        self.counts.zero_()
        self.worst.zero_()

    def _make(self, part: Slice) -> None:
        grid = launch.pairs_grid(part, interleaved=self.interleaved)
        place_of = (part.row, part.column, part.columns)
        maker = launch.pairs(self.interleaved)
        maker.launch(self.device, grid, *self.places, self.firsts, self.seconds, self.stride, *place_of)

    def _outputs(self, returned: Any) -> list[torch.Tensor]:
        """The outputs in their order, contiguous; they are the judge's to overwrite."""
        if self.op.mutated:
            return [self.tensors[name] for name in self.op.mutated]
        if self.out is not None:
            return [self.out]
        if not isinstance(returned, torch.Tensor):
            raise BadOutput(f"returned {type(returned).__name__}, not a tensor")
        found = (tuple(returned.shape), returned.dtype, returned.device.type)
        wanted = (self.shape, self.tensors[self.op.rows[0]].dtype, self.device.type)
        if found != wanted:
            raise BadOutput(f"output is {found[1]} {found[0]} on {found[2]}, not {wanted[1]} {wanted[0]} on {wanted[2]}")
        return [returned.detach().contiguous()]


def has_two_operands(op: Operator) -> bool:
    """Whether an output depends on two 16-bit values: gate and up, or input and residual of a row of one element."""
    return len(op.roles) == 2

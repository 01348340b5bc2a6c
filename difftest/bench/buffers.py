"""Prepared buffer sets: every call of a graph gets its own, all with the same first values."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from difftest.bench.shapes import ALIGNMENT
from difftest.cases.case import Case
from reference.formats import FORMATS


class BufferSets:
    """`count` sets of one case's row tensors, each buffer at its own aligned place; one weight, as in a layer.

    The values are those a transformer's residual stream has: unit normal rows, a weight near one (near zero for Gemma, whose
    bias is one). They are drawn on the device, where the widest rows take no time.
    """

    def __init__(self, case: Case, count: int, device: torch.device, seed: int = 0) -> None:
        self.case = case
        self.count = count
        op, storage = case.operator, FORMATS[case.dtype].torch
        generator = torch.Generator(device).manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=storage, device=device).normal_(generator=generator)

        self.first = {name: normal(case.rows, op.row_length(name, case.width)) for name in op.rows}
        self.vectors = {name: normal(case.width) * 0.1 + (1.0 - op.weight_bias) for name in op.vectors}
        self._pools = {}
        for name, values in self.first.items():
            step = -(-values.numel() * storage.itemsize // ALIGNMENT) * ALIGNMENT // storage.itemsize
            pool = torch.zeros(count, step, dtype=storage, device=device)[:, : values.numel()]
            self._pools[name] = pool.view(count, *values.shape)

    def refresh(self) -> None:
        """Gives every set its first values again."""
        for name, pool in self._pools.items():
            pool.copy_(self.first[name])

    def first_values(self) -> dict[str, torch.Tensor]:
        """What every set holds before a call, the weight among it."""
        return {**self.first, **self.vectors}

    def tensors(self, index: int) -> dict[str, torch.Tensor]:
        """The buffers of one set by name, the weight among them."""
        return {**{name: pool[index] for name, pool in self._pools.items()}, **self.vectors}

    def arguments(self, index: int) -> tuple[Any, ...]:
        """The positional arguments of one call."""
        return self.case.operator.arguments(self.tensors(index), self.case.contract)


class CopyPairs:
    """`count` pairs of buffers of half of `moved` bytes: a copy from one to the other reads and writes `moved` bytes.

    There are two ways to copy, and neither is the faster at every size: on an H200 torch's `copy_`, which is the driver's
    memcpy, moves 4.0 TB/s of 128 MiB and 2.7 of 1 GiB, a kernel of torch's 4.0 and 4.2.
    """

    def __init__(self, moved: int, count: int, device: torch.device) -> None:
        half = -(-moved // 8)  # in words of four bytes
        step = -(-half * 4 // ALIGNMENT) * ALIGNMENT // 4
        source, target = torch.zeros(2, count, step, dtype=torch.int32, device=device)[:, :, :half]
        self.moved = 8 * half
        pairs = list(zip(target, source, strict=True))
        self.ways = {
            "memcpy": [partial(target.copy_, source) for target, source in pairs],
            "kernel": [partial(torch.add, source, 0, out=target) for target, source in pairs],
        }

    def refresh(self) -> None:
        """Nothing: a copy leaves its source as it was."""

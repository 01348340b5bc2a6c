"""Prepared buffer sets: every call of a graph gets its own, all with the same first values. Imports torch."""

from __future__ import annotations

from functools import partial

import torch

from difftest.bench.plan import ALIGNMENT, EPS, Point

Arguments = tuple[torch.Tensor | float, ...]


class BufferSets:
    """`count` sets of one point's inputs, each buffer at its own aligned place; one weight, as in a layer.

    The values are those a transformer's residual stream has: unit normal rows, a weight near one (near zero for Gemma, whose
    bias is one).
    """

    def __init__(self, point: Point, count: int, device: torch.device, seed: int = 0) -> None:
        self.point = point
        self.count = count
        generator = torch.Generator(device).manual_seed(seed)
        family = point.operator.family
        row = point.width * (2 if family == "gated" else 1)
        names = [name for name in point.operator.inputs if name != "weight"]

        def normal(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=point.storage, device=device).normal_(generator=generator)

        self.first = {name: normal(point.rows, row) for name in names}
        self.weight = None if family == "gated" else normal(point.width) * 0.1 + (1.0 - point.operator.weight_bias)
        elements = point.rows * row
        step = -(-elements * point.storage.itemsize // ALIGNMENT) * ALIGNMENT // point.storage.itemsize
        self._pools = {
            name: torch.zeros(count, step, dtype=point.storage, device=device)[:, :elements].view(count, point.rows, row)
            for name in names
        }

    def refresh(self) -> None:
        """Gives every set its first values again."""
        for name, pool in self._pools.items():
            pool.copy_(self.first[name])

    def first_values(self) -> dict[str, torch.Tensor]:
        """What every set holds before a call, the weight among it."""
        return self.first if self.weight is None else {**self.first, "weight": self.weight}

    def tensors(self, index: int) -> dict[str, torch.Tensor]:
        """The buffers of one set by name, the weight among them."""
        found = {name: pool[index] for name, pool in self._pools.items()}
        return found if self.weight is None else {**found, "weight": self.weight}

    def arguments(self, index: int) -> Arguments:
        """The positional arguments of one call."""
        tensors = tuple(self.tensors(index).values())
        return tensors if self.weight is None else (*tensors, EPS)


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

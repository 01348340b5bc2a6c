"""The ladder of norm kernels: the steps from the textbook to what tuning chooses, each with what it adds and why.

Every step is a kernel that can be run, for bf16 ``fused_add_rmsnorm`` and its like. A step that has nothing to add to a shape is
the step before it; one that can't take it raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import tuning
from ..formats import FORMATS
from ..plans import NormPlan
from .config import NormConfig, NormOperation, TextbookConfig
from .tree import row_tree


def textbook(call: tuning.Call, tuned: NormConfig) -> TextbookConfig:
    """one block a row, one element a thread at a time; the fp32 row waits in shared memory for its sum"""
    config = TextbookConfig()
    if 4 * call.tree.width + tuning.SHARED_STATIC > call.target.shared_bytes:
        raise ValueError(f"a row of {call.tree.width} in fp32 does not fit the shared memory of a block")
    return config


def vectors(call: tuning.Call, tuned: NormConfig) -> NormConfig:
    """16-byte vectors: an eighth of the instructions for the same bytes, and more bytes under way at a time"""
    config = tuning.streamed(call)
    return replace(config, access=tuned.access, weight_access=tuned.weight_access, fixed_tree=False)


def registers(call: tuning.Call, tuned: NormConfig) -> NormConfig:
    """the row in registers: no trip through shared memory, and all of a row's loads are under way before the first is used"""
    config = tuning.block(call)
    if config is None:
        raise ValueError(f"a row of {call.tree.width} does not fit the registers of a block")
    return replace(config, access=tuned.access, weight_access=tuned.weight_access, fixed_tree=False)


def fixed_tree(call: tuning.Call, tuned: NormConfig) -> NormConfig:
    """one summation tree for each width, whoever adds it up: no speed, but what follows may be tuned and keeps a row's bits"""
    return replace(registers(call, tuned), fixed_tree=True)


def dependent_launch(call: tuning.Call, tuned: NormConfig) -> NormConfig:
    """the launch while the predecessor ends, and prefetch into L2: memory is asked before the row's turn comes"""
    return tuning.with_prefetch(call, replace(fixed_tree(call, tuned), pdl=call.target.pdl))


def several_rows(call: tuning.Call, tuned: NormConfig) -> NormConfig:
    """short rows by a warp or a part of one, several a block: no barrier, and no idle threads"""
    config = tuning.part_of_a_block(call)
    if config is None:
        return dependent_launch(call, tuned)
    accesses = {"access": tuned.access, "weight_access": tuned.weight_access}
    return tuning.with_prefetch(call, replace(config, **accesses, pdl=call.target.pdl))


def cluster(call: tuning.Call, tuned: NormConfig) -> NormConfig:
    """a row by a cluster of blocks: rows that no block can hold stay in registers, and few rows reach more multiprocessors"""
    return replace(tuned, persistent=False) if tuned.cluster > 1 else several_rows(call, tuned)


def persistent(call: tuning.Call, tuned: NormConfig) -> NormConfig:
    """clusters that stay and take row after row from a counter: none is started anew, and rows are read in their order"""
    return tuned


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its name, and the function that says what it adds and configures it for a call."""

    name: str
    configure: Callable[[tuning.Call, NormConfig], NormConfig | TextbookConfig]

    @property
    def why(self) -> str:
        """What the step adds and why, in a line."""
        return self.configure.__doc__ or ""

    def plan(self, rows: int, width: int, dtype: str, target: tuning.Target, *, adds_residual: bool = True) -> NormPlan:
        """The step's kernel for aligned, contiguous rows. ValueError, with the reason, where it can't take them."""
        operation = NormOperation(adds_residual, dtype, dtype, rounds_sum=False, rounds_norm=False, weight_bias=0.0)
        itemsize = FORMATS[dtype].itemsize
        access = tuning.access_bytes(row_tree(width, itemsize).vector, itemsize, width * itemsize)
        accesses = {"access": access, "weight_access": access}
        tuned = tuning.norm_config(operation, width, rows, target, **accesses, pdl=target.pdl)
        config = self.configure(tuning.call_of(operation, width, rows, target), tuned)
        eps_bits = int(np.float32(1e-6).view(np.uint32))
        return NormPlan(operation, rows, width, width, width, width, eps_bits, config)

    def make(self, rows: int, width: int, dtype: str) -> Callable[..., None]:
        """``f(input, residual, weight, eps=1e-6)`` for torch tensors on the current GPU, both rows written in place."""
        import torch

        from ..runtime import launch

        device = torch.cuda.current_device()
        plan = self.plan(rows, width, dtype, launch.target(device))
        prepared: dict[float, launch.Prepared] = {}

        def fused_add_rmsnorm(input: Any, residual: Any, weight: Any, eps: float = 1e-6) -> None:
            if eps not in prepared:
                bits = int(np.float32(eps).view(np.uint32))
                prepared[eps] = launch.Prepared(replace(plan, eps_bits=bits), device, None)
            x, r, w = input.data_ptr(), residual.data_ptr(), weight.data_ptr()
            addresses = (x, r, w, x)
            prepared[eps].launch(addresses, launch.alignment_of(addresses), torch.cuda.current_stream().cuda_stream)

        return fused_add_rmsnorm


STEPS = (
    Step("textbook", textbook),
    Step("16-byte vectors", vectors),
    Step("the row in registers", registers),
    Step("the fixed tree", fixed_tree),
    Step("dependent launch and prefetch", dependent_launch),
    Step("several rows a block", several_rows),
    Step("a cluster", cluster),
    Step("a persistent cluster", persistent),
)

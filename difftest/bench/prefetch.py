"""An experiment: does a norm that calls the next product's weight into the L2 make norm and product faster?

A product of few rows waits for its weight to come from memory, which stands idle while the norm ahead of it runs. Spare blocks of
the norm's launch ask the L2 for a part of that weight (`kernels.make_norm_with_prefetch`); the product is cuBLAS's and knows
nothing of it. No public function has this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from difftest.bench import chain, kernels, launch
from difftest.bench.chain import NORM, PRODUCTS, Make, Setting, Sizes, twice
from difftest.bench.choices import addresses, choice, plan_of
from difftest.bench.measure import Entry
from difftest.bench.shapes import OURS
from numba_kernels import tuning
from reference.formats import FORMATS
from reference.operators.declaration import DEFAULT_EPS
from reference.providers import Provider, Refused

PEERS = ("flashinfer",)
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Prefetch:
    """What is called into the L2: `pieces` pieces of a weight, `step` bytes apart and `size` bytes long, multiples of 16."""

    pieces: int
    step: int
    size: int

    @property
    def name(self) -> str:
        """As the result has it."""
        part = "whole rows" if self.size == self.step else "the begin of every row"
        return f"{OURS} and {self.pieces * self.size / MIB:.3g} MiB, {part}"


def prefetches(sizes: Sizes) -> list[Prefetch]:
    """Parts of the gate and up weight: its first rows whole, which few blocks of the product read, or the begin of every row,
    which is what each block reads first.
    """
    rows, row = 2 * sizes.inner, sizes.hidden * FORMATS[sizes.dtype].torch.itemsize
    whole = [Prefetch(rows // share, row, row) for share in (112, 28, 8)]
    return [*whole, *(Prefetch(rows, row, row // share) for share in (64, 32, 8))]


def point(where: Setting, providers: Sequence[Provider], target: tuning.Target) -> dict[str, Any]:
    """Microseconds of a norm and the product after it: of the product alone, after each provider's norm (which works in place),
    and after ours with each prefetch, whose products must be ours, bit for bit. `providers` begin with ours.
    """
    shape = (len(where.weights), *where.first[0].shape)  # each layer's norm has rows of its own
    first = (where.first[0].expand(shape).contiguous(), where.first[1].expand(shape).contiguous())
    where = replace(where, first=first)
    found = {PRODUCTS: twice(PRODUCTS, where, lambda: _pairs(where, _no_norms))}
    for provider in providers:
        norms = partial(_norms_of, provider, where)
        found[provider.name] = twice(provider.name, where, partial(_pairs, where, norms))
    for each in prefetches(where.sizes):
        norms = partial(_norms_with, each, where, target)
        found[each.name] = twice(each.name, where, partial(_pairs, where, norms))
    rows = chain.time_all(found, where)
    ours = found[OURS]
    for each in prefetches(where.sizes):
        row, entered = next(row for row in rows if row["name"] == each.name), found[each.name]
        if not isinstance(entered, str) and not isinstance(ours, str):
            row |= _checked(entered[0], ours[0], where)
    return {**chain.head(where), "noise": chain.noise(rows), "results": rows}


Norms = Callable[[torch.Tensor, torch.Tensor], list[Callable[[], Any]]]  # from all layers' x and residual to each layer's norm


def _pairs(where: Setting, norms: Norms) -> Make:
    """For each layer its norm, in place in its x, and the product after it."""

    def run(each: Sequence[Callable[[], Any]], xs: torch.Tensor) -> list[torch.Tensor]:
        products = []
        for norm, layer, x in zip(each, where.weights, xs, strict=True):
            norm()
            products.append(F.linear(x, layer.gate_up))
        return products

    return lambda state: partial(run, norms(*state), state[0])


def _no_norms(xs: torch.Tensor, residuals: torch.Tensor) -> list[Callable[[], Any]]:
    return [lambda: None] * len(xs)


def _norms_of(provider: Provider, where: Setting, xs: torch.Tensor, residuals: torch.Tensor) -> list[Callable[[], Any]]:
    if not provider.in_place:
        raise Refused(f"{provider.name}'s norm does not work in place")
    norm = chain.native(provider, NORM, where)
    given = zip(xs, residuals, where.weights, strict=True)
    return [partial(norm, x, residual, layer.norm, DEFAULT_EPS) for x, residual, layer in given]


def _norms_with(
    each: Prefetch, where: Setting, target: tuning.Target, xs: torch.Tensor, residuals: torch.Tensor
) -> list[Callable[[], Any]]:
    """Our norm as tuning has it, and as many blocks again as there are multiprocessors for the prefetch."""
    case = where.case(NORM)
    kernel, plan, number = choice(case, target), plan_of(case), where.device.index or 0
    (blocks, _, _), shared = plan.shape(kernel)
    grid = (blocks + target.processors, 1, 1)
    norms: list[Callable[[], Any]] = []
    for x, residual, layer in zip(xs, residuals, where.weights, strict=True):
        constants = (*plan.arguments(()), layer.gate_up.data_ptr(), each.pieces, each.step, each.size)
        launched = launch.launcher_of(kernels.make_norm_with_prefetch, kernel, grid, constants, number, shared)
        norms.append(partial(launched, *addresses(case, {"input": x, "residual": residual, "weight": layer.norm}, x)))
    return norms


def _checked(entry: Entry, ours: Entry, where: Setting) -> dict[str, Any]:
    """`wrong` where a product is not what it is after our norm without a prefetch; nothing where all are."""
    for graph in (entry, ours):
        where.timer.launch(graph.captured, graph.refresh)
    pairs = zip(entry.captured.outputs[0], ours.captured.outputs[0], strict=True)
    apart = [number for number, (mine, wanted) in enumerate(pairs) if not torch.equal(mine, wanted)]
    return {"status": "wrong", "reason": f"layers {apart} have other bits than without a prefetch"} if apart else {}

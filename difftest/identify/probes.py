"""Rows built to tell contracts apart, drawn on the CPU from a seed and then moved: the same bits on every device."""

from __future__ import annotations

from itertools import combinations

import torch

from reference.arithmetic import evaluate
from reference.operators import Operator
from reference.operators.contract import Contract, corners
from reference.operators.declaration import RSTD

Tensors = dict[str, torch.Tensor]

ELEMENTS = 2**16  # of a probe, at most: 16 rows of 4096
MOST_ROWS = 2048  # of narrow rows: 6144 elements at width 3, a quarter of which two corners disagree on
LEAST_ROWS = 16
DRAWN = 4  # rows drawn for each one kept

# Rows of this scale, and of at least half its square as mean square, are moved by 8e-9 in rstd by the largest eps that is
# tried, finfo(bf16).eps, an eighth of one rounding: what such rows say about the corners holds whatever eps is. The
# largest elements stay a factor of 8 below fp16's limit.
LOUD = 1024.0
# Of a role at whose values the formula switches: the share of elements that lie about those values, and of them the share
# that lie within 1/16; the others reach from a quarter to four times. One element in 64 is Inf, -Inf or NaN.
SWITCHED = 0.5
NEAR = 0.5
SPECIAL = 1 / 64
# Rows of these mean squares tell every eps that is tried from the next: 0 and 1e-8 by 5 to 0.05 %.
QUIET = (1e-7, 1e-5)


def rows_for(width: int) -> int:
    """How many rows a probe of this width has."""
    return max(LEAST_ROWS, min(MOST_ROWS, ELEMENTS // width))


def telling(op: Operator, dtype: torch.dtype, width: int, seed: int) -> Tensors:
    """Rows on which the corners of `op` differ as often as chance has it in the best quarter of the rows drawn.

    Norms: unit-normal halves of the sum, times 1024; weights of every significand in [1/2, 2), less the operator's bias.
    Gated: three gates in four of magnitude 2^-6 to 1/2, where act(gate) is about gate / 2, needs rounding, and even a
    hardware tanh is off by less than a tenth of an fp16 ULP; the fourth up to 4, where the activations differ.
    """
    rows, generator = rows_for(width), torch.Generator().manual_seed(seed)
    drawn = _draw(op, DRAWN * rows, width, dtype, generator)
    results = [evaluate(op, drawn, contract)["output"] for contract in corners(op)]
    differing = torch.stack([(a != b).sum(-1) for a, b in combinations(results, 2)]).sum(0)
    if op.made_of == RSTD:
        total = torch.stack([drawn[name].float() for name in op.rows]).sum(0)
        differing = torch.where(total.square().mean(-1) < LOUD**2 / 2, -1, differing)
    kept = differing.topk(rows).indices
    return {name: tensor if name in op.vectors else tensor[kept].contiguous() for name, tensor in drawn.items()}


def quiet(op: Operator, dtype: torch.dtype, width: int, seed: int) -> Tensors:
    """A norm's rows of mean square 1e-7 to 1e-5, so that eps shows; a quarter of the rows that `telling` has."""
    generator = torch.Generator().manual_seed(seed)
    rows = max(LEAST_ROWS // 2, rows_for(width) // 4)
    values = {name: torch.randn(rows, width, generator=generator) for name in op.rows}
    total = torch.stack(tuple(values.values())).sum(0)
    low, high = (torch.tensor(end).log() for end in QUIET)
    target = torch.exp(low + (high - low) * torch.rand(rows, 1, generator=generator))
    scale = (target / total.square().mean(-1, keepdim=True).clamp_min(1e-6)).sqrt()
    scaled = {name: (value * scale).to(dtype) for name, value in values.items()}
    return {**scaled, **_vectors(op, width, dtype, generator)}


def switching(op: Operator, dtype: torch.dtype, width: int, seed: int, contract: Contract) -> Tensors:
    """Rows as `telling` draws them, but that half of the elements of each role with switches lie about the values at which the
    formula changes its form under `contract`, and about their negatives; and some Inf and NaN.
    """
    rows, generator = rows_for(width), torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(rows, width, generator=generator)

    values = op.split(_draw(op, rows, width, torch.float32, generator))
    for role, points in op.switch_values(contract).items():
        point = torch.tensor(points)[torch.randint(len(points), (rows, width), generator=generator)]
        far, near = torch.exp2(uniform(-2.0, 2.0)), uniform(15 / 16, 17 / 16)
        factor = torch.where(uniform(0.0, 1.0) < NEAR, near, far)
        about = torch.where(uniform(-1.0, 1.0) < 0, -point, point) * factor
        special = torch.tensor((torch.inf, -torch.inf, torch.nan))[torch.randint(3, (rows, width), generator=generator)]
        chosen = uniform(0.0, 1.0)
        values[role] = torch.where(chosen < SPECIAL, special, torch.where(chosen < SWITCHED, about, values[role]))
    assembled = op.assemble(values) | {name: values[name] for name in op.vectors}
    return {name: tensor.to(dtype) for name, tensor in assembled.items()}


def _draw(op: Operator, rows: int, width: int, dtype: torch.dtype, generator: torch.Generator) -> Tensors:
    if op.made_of == RSTD:
        values = {name: LOUD * torch.randn(rows, width, generator=generator) for name in op.rows}
        stored = {name: value.to(dtype) for name, value in values.items()}
        return {**stored, **_vectors(op, width, dtype, generator)}

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(rows, width, generator=generator)

    small, moderate = torch.exp2(uniform(-6.0, -1.0)), uniform(0.5, 4.0)
    gate = torch.where(uniform(0.0, 1.0) < 0.75, small, moderate)
    up = torch.exp2(uniform(-1.0, 1.0))
    signs = [torch.where(uniform(-1.0, 1.0) < 0, -1.0, 1.0) for _ in range(2)]
    tensors = op.assemble({"gate": signs[0] * gate, "up": signs[1] * up})
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


def _vectors(op: Operator, width: int, dtype: torch.dtype, generator: torch.Generator) -> Tensors:
    effective = {name: torch.exp2(2.0 * torch.rand(width, generator=generator) - 1.0) for name in op.vectors}
    return {name: (value - op.weight_bias).to(dtype) for name, value in effective.items()}

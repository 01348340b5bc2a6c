"""The operators' inner quantities in float64, accurate to the bounds in `reference.bounds`.

What the oracle rounds, what the attainable set widens, and what a verdict divides by. Imports torch and this package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from reference.arithmetic import Tensors, biased_weight, eps_in_fp32
from reference.bounds import FACTOR_F64, NEGLIGIBLE, TANH_ARGUMENT_F64
from reference.contracts import Contract, check_contract
from reference.operators import Operator


@dataclass(frozen=True, slots=True)
class NormTerms:
    """A norm's rows, flattened to (rows, width), float64 unless said otherwise.

    `hidden` and `weight` (bias included) are exact: they are fp32 or storage values. `mean_square`, `shifted`
    (mean_square + eps) and `rstd` have shape (rows, 1). `sum32` (fp32) and `stored_sum` (storage dtype), in the call's
    shape, are input + residual for the operators that add, else None. `finite`: (rows, 1), no NaN or Inf in the row.
    `rounds_norm` is False for fp32 storage, where the contracts coincide.
    """

    storage: torch.dtype
    shape: torch.Size
    sum32: torch.Tensor | None
    stored_sum: torch.Tensor | None
    hidden: torch.Tensor
    weight: torch.Tensor
    mean_square: torch.Tensor
    shifted: torch.Tensor
    rstd: torch.Tensor
    finite: torch.Tensor
    rounds_norm: bool
    biased: bool


def norm_terms(op: Operator, inputs: Tensors, contract: Contract, *, compensated: bool = True) -> NormTerms:
    """The terms of an add_norm or norm operator. `compensated=False` sums in plain float64: width * 2^-53 at worst."""
    check_contract(op, contract)
    rows = inputs["input"]
    storage = rows.dtype
    hidden32 = rows.float()
    sum32, stored_sum = None, None
    if op.family == "add_norm":
        hidden32 = sum32 = hidden32 + inputs["residual"].float()
        stored_sum = sum32.to(storage)
        if contract.rounds_sum:
            hidden32 = stored_sum.float()
    width = rows.shape[-1]
    hidden = hidden32.double().reshape(-1, width)
    squares = hidden.square()
    plain = squares.sum(dim=-1, keepdim=True)
    finite = torch.isfinite(plain)  # squares of fp32 numbers cannot overflow float64
    total = torch.where(finite, _compensated_sum(squares), plain) if compensated else plain
    mean_square = total / width
    shifted = mean_square + eps_in_fp32(contract)
    return NormTerms(
        storage=storage,
        shape=rows.shape,
        sum32=sum32,
        stored_sum=stored_sum,
        hidden=hidden,
        weight=biased_weight(inputs["weight"], contract).double(),
        mean_square=mean_square,
        shifted=shifted,
        rstd=1.0 / torch.sqrt(shifted),
        finite=finite,
        rounds_norm=contract.rounds_norm and storage is not torch.float32,
        biased=contract.weight_bias != 0.0,
    )


def _compensated_sum(terms: torch.Tensor) -> torch.Tensor:
    """Sum over the last axis, (rows, 1): a pairwise tree of TwoSums (Knuth) whose errors are added at the end."""
    high, low = terms, torch.zeros_like(terms)
    while high.shape[-1] > 1:
        if high.shape[-1] % 2:
            high = torch.nn.functional.pad(high, (0, 1))
            low = torch.nn.functional.pad(low, (0, 1))
        half = high.shape[-1] // 2
        a, b = high[..., :half], high[..., half:]
        total = a + b
        virtual = total - a
        error = (a - (total - virtual)) + (b - virtual)
        high, low = total, (low[..., :half] + low[..., half:]) + error
    return high + low


@dataclass(frozen=True, slots=True)
class GatedTerms:
    """A gated operator's rows, flattened to (rows, width), float64.

    act(gate) = gate * factor, with `factor` in [0, 1]: sigmoid(argument), or Phi(gate) for gelu. `error` bounds the
    factor's relative error. `gate` and `up` are exact.
    """

    storage: torch.dtype
    shape: torch.Size
    gate: torch.Tensor
    up: torch.Tensor
    argument: torch.Tensor
    factor: torch.Tensor
    error: torch.Tensor
    rounds_activation: bool


def gated_terms(op: Operator, inputs: Tensors, contract: Contract) -> GatedTerms:
    """The terms of a gated operator."""
    check_contract(op, contract)
    rows = inputs["input"]
    width = rows.shape[-1] // 2
    halves = rows.reshape(-1, 2 * width).double()
    gate, up = halves[:, :width], halves[:, width:]
    argument, factor, error = activation_factor(str(op.activation), gate)
    return GatedTerms(
        storage=rows.dtype,
        shape=torch.Size((*rows.shape[:-1], width)),
        gate=gate,
        up=up,
        argument=argument,
        factor=factor,
        error=error,
        rounds_activation=contract.rounds_activation and rows.dtype is not torch.float32,
    )


def activation_factor(name: str, gate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(argument, act(gate) / gate, its relative error bound) for silu, gelu or gelu_tanh; `gate` float64 from fp32.

    No form cancels: sigmoid from exp(-|t|); Phi from erfcx, whose companion exp(-gate^2 / 2) has an exact argument
    because the square of an fp32 number fits float64. 1 - Phi is taken only where Phi <= 1/2.
    """
    bound = torch.full_like(gate, FACTOR_F64)
    if name == "gelu":
        tail = 0.5 * torch.special.erfcx(gate.abs() * math.sqrt(0.5)) * torch.exp(-0.5 * gate.square())
        return gate, torch.where(gate < 0, tail, 1.0 - tail), bound
    argument = gate
    if name == "gelu_tanh":
        argument = gate * (2.0 * math.sqrt(2.0 / math.pi)) * (1.0 + 0.044715 * gate.square())
    decay = torch.exp(-argument.abs())
    factor = torch.where(argument < 0, decay, 1.0) / (1.0 + decay)
    if name == "gelu_tanh":
        growth = argument.abs() * torch.where(argument < 0, 1.0, decay)
        bound = bound + TANH_ARGUMENT_F64 * growth.nan_to_num(nan=0.0, posinf=1e300)
    return argument, factor, bound


def enclose(gate: torch.Tensor, factor: torch.Tensor, error: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Magnitudes (lowest, highest), float64, for |gate * factor * up|, gate and up finite: no tie beyond them matters.

    The factor is above 1/2 for a positive gate and below for a negative one, and never reaches 0, 1/2 or 1. The exact
    product |gate * up| and its half, both float64 numbers, therefore bound the value strictly. They matter: where the
    factor is within 2^-53 of 1 or 1/2 the value sits just beside a number that is often a tie. Such an end is moved to
    the next float64 number inwards. The value may lie in the gap of one float64 step, but no tie can: ties are float64
    numbers. So the value rounds as some number in [lowest, highest] does.
    """
    product = (gate * up).abs()  # 24-bit significands: exact
    half = 0.5 * product
    infinity = torch.full_like(product, math.inf)
    above = torch.where(gate > 0, torch.nextafter(half, infinity), 0.0)
    below = torch.nextafter(torch.where(gate > 0, product, half), -infinity)
    lowest = torch.maximum(product * (factor * (1.0 - error)) - NEGLIGIBLE, above)
    highest = torch.minimum(product * (factor * (1.0 + error)) + NEGLIGIBLE, below)
    nothing = product == 0
    return torch.where(nothing, 0.0, lowest), torch.where(nothing, 0.0, highest)

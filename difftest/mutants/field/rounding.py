"""Another rounding than the contract's: in another place, or not to nearest even."""

from __future__ import annotations

import torch

from difftest.mutants import plain
from difftest.mutants.entry import mutant
from reference.formats import bits


def step_below(stored, exact):
    """Where a stored value is farther from zero than the fp32 value that it came from, the step below it."""
    over = (stored.float().abs() > exact.abs()) & stored.isfinite()
    return torch.where(over, (bits(stored) - 1).view(stored.dtype), stored)


def truncated(exact, dtype):
    """fp32 values in a storage dtype, the bits beyond cut off."""
    return step_below(exact.to(dtype), exact)


def half_away(exact, dtype):
    """fp32 values in a storage dtype, ties away from zero."""
    low = truncated(exact, dtype)
    high = (bits(low) + 1).view(dtype)
    tie = exact.double().abs() * 2 == low.double().abs() + high.double().abs()
    return torch.where(tie & exact.isfinite() & high.isfinite(), high, exact.to(dtype))


def stochastic(exact, dtype, generator, share=1.0):
    """fp32 values in a storage dtype: of a share of the elements either neighbour, with a probability by distance."""
    low = truncated(exact, dtype)
    high = (bits(low) + 1).view(dtype)
    there = (exact.double().abs() - low.double().abs()) / (high.double().abs() - low.double().abs())
    drawn = torch.rand(exact.shape, generator=generator)
    chosen = torch.rand(exact.shape, generator=generator) < share
    up = torch.where(drawn < there.float(), high, low)
    return torch.where(chosen & exact.isfinite() & high.isfinite(), up, exact.to(dtype))


def fixed(exact):
    """A generator whose numbers depend on the values alone: the same call draws the same again."""
    return torch.Generator().manual_seed(int(exact.nan_to_num(0, 0, 0).double().abs().sum().clamp(max=1e15)) + exact.numel())


@mutant("fused_add_rmsnorm", "vllm#52104")
def sum_rounded_first(input, residual, weight, eps):
    """Another contract under the same name: the stored sum is normalised, R1W0."""
    residual.add_(input)
    input.copy_(plain.normalised(residual.float(), weight, eps))


@mutant("fused_add_rmsnorm", "vllm-omni#6878", contract="R1W0")
def sum_not_rounded(input, residual, weight, eps):
    """Another contract under the same name: the fp32 sum is normalised, R0W0 for R1W0."""
    plain.fused_add_rmsnorm(input, residual, weight, eps)


@mutant("fused_add_rmsnorm", "vllm#42325, sglang#22931")
def norm_rounded_before_the_weight(input, residual, weight, eps):
    """Another contract under the same name: h * rstd is rounded before the weight multiplies it, R0W1."""
    total = input.float() + residual.float()
    residual.copy_(total)
    input.copy_((total * plain.rstd(total, eps)).to(input.dtype) * weight.float())


@mutant("rmsnorm", "kind of vllm#52104, Hugging Face's own form", contract="W1")
def norm_not_rounded_before_the_weight(input, weight, eps):
    """Another contract under the same name: W0 for W1."""
    return plain.rmsnorm(input, weight, eps)


@mutant("silu_and_mul", "vllm-xpu-kernels#536")
def activation_rounded_first(input):
    """Another contract under the same name: the activation is rounded before up multiplies it, S1."""
    gate, up = plain.halves(input)
    return ((gate * torch.sigmoid(gate)).to(input.dtype).float() * up).to(input.dtype)


@mutant("fused_add_rmsnorm", "kind of vllm#52104")
def squares_of_the_stored_sum(input, residual, weight, eps):
    """The stored sum is squared, the fp32 sum normalised: between the contracts."""
    total = input.float() + residual.float()
    residual.copy_(total)
    input.copy_(total * plain.rstd(residual.float(), eps) * weight.float())


@mutant("rmsnorm", "kind of a store that truncates")
def output_truncated(input, weight, eps):
    """The output is cut off, not rounded."""
    return truncated(plain.normalised(input.float(), weight, eps), input.dtype)


@mutant("rmsnorm", "kind of a store that truncates", contract="W1")
def inner_value_truncated(input, weight, eps):
    """W1's inner value is cut off, not rounded."""
    rows = input.float()
    inner = truncated(rows * plain.rstd(rows, eps), input.dtype)
    return (inner.float() * weight.float()).to(input.dtype)


@mutant("fused_add_rmsnorm", "kind of a store that truncates")
def residual_truncated(input, residual, weight, eps):
    """The new residual is cut off, not rounded."""
    total = input.float() + residual.float()
    residual.copy_(truncated(total, residual.dtype))
    input.copy_(plain.normalised(total, weight, eps))


@mutant("rmsnorm", "kind of roundf, which rounds half away")
def half_away_from_zero(input, weight, eps):
    """The output's ties are rounded away from zero."""
    return half_away(plain.normalised(input.float(), weight, eps), input.dtype)


@mutant("fused_add_rmsnorm", "kind of roundf, which rounds half away")
def residual_half_away_from_zero(input, residual, weight, eps):
    """The new residual's ties are rounded away from zero."""
    total = input.float() + residual.float()
    residual.copy_(half_away(total, residual.dtype))
    input.copy_(plain.normalised(total, weight, eps))


@mutant("silu_and_mul", "kind of stochastic rounding in training")
def output_stochastic(input):
    """The output is rounded stochastically."""
    gate, up = plain.halves(input)
    exact = gate * torch.sigmoid(gate) * up
    return stochastic(exact, input.dtype, fixed(exact))


@mutant("fused_add_rmsnorm", "kind of stochastic rounding in training")
def residual_stochastic_once_in_a_thousand(input, residual, weight, eps):
    """One element in a thousand of the new residual is rounded stochastically."""
    total = input.float() + residual.float()
    residual.copy_(stochastic(total, residual.dtype, fixed(total), 1e-3))
    input.copy_(plain.normalised(total, weight, eps))


@mutant("rmsnorm", "kind of a store through another format")
def rounded_twice(input, weight, eps):
    """The output is rounded to 11 bits and then to the storage dtype's."""
    exact = plain.normalised(input.float(), weight, eps)
    coarse = ((exact.view(torch.int32) + 0x0FFF + ((exact.view(torch.int32) >> 13) & 1)) & ~0x1FFF).view(torch.float32)
    return torch.where(exact.isfinite(), coarse, exact).to(input.dtype)


@mutant("rmsnorm", "kind of an out-of-range store")
def last_bit_cleared(input, weight, eps):
    """The output's last bit is always 0: the storage dtype has one bit less."""
    output = plain.rmsnorm(input, weight, eps)
    return torch.where(output.isfinite(), (bits(output) & ~1).view(output.dtype), output)

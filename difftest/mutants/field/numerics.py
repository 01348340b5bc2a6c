"""Too few bits in the middle: sums, roots, means and intermediates that fp32 does not explain, or that lean to one side."""

from __future__ import annotations

import torch

from difftest.mutants import plain
from difftest.mutants.entry import mutant


def normalised_by(rows, rstd, weight, dtype):
    """rows * rstd * weight, stored."""
    return (rows * rstd * weight.float()).to(dtype)


def toward_zero(values):
    """Of float64 values, the fp32 neighbours toward zero."""
    nearest = values.float()
    return torch.where(nearest.double().abs() > values.abs(), torch.nextafter(nearest, torch.zeros_like(nearest)), nearest)


@mutant("rmsnorm", "kind of llm.c, rstd kept in the activations' dtype")
def rstd_in_storage(input, weight, eps):
    """rstd is rounded to the storage dtype."""
    rows = input.float()
    return normalised_by(rows, plain.rstd(rows, eps).to(input.dtype).float(), weight, input.dtype)


@mutant("fused_add_rmsnorm", "kind of nntrainer#4318")
def sum_in_storage(input, residual, weight, eps):
    """Partial sums of 32 squares are kept in the storage dtype."""
    total = input.float() + residual.float()
    residual.copy_(total)
    width = total.shape[-1]
    squares = torch.nn.functional.pad(total.square(), (0, -width % 32)).unflatten(-1, (-1, 32))
    partial = squares.sum(-1).to(input.dtype).float().sum(-1, keepdim=True)
    input.copy_(normalised_by(total, torch.rsqrt(partial / width + eps), weight, input.dtype))


@mutant("rmsnorm", "Quake III's root")
def root_of_one_newton_step(input, weight, eps):
    """The integer estimate of 1/sqrt with one Newton step: 0.2 % off."""
    rows = input.float()
    x = rows.square().mean(-1, keepdim=True) + eps
    y = (0x5F3759DF - (x.view(torch.int32) >> 1)).view(torch.float32)
    return normalised_by(rows, y * (1.5 - 0.5 * x * y * y), weight, input.dtype)


@mutant("rmsnorm", "Quake III's root")
def root_of_two_newton_steps(input, weight, eps):
    """The integer estimate of 1/sqrt with two Newton steps: up to 4.7e-6 too low, and never too high."""
    rows = input.float()
    x = rows.square().mean(-1, keepdim=True) + eps
    y = (0x5F3759DF - (x.view(torch.int32) >> 1)).view(torch.float32)
    for _ in range(2):
        y = y * (1.5 - 0.5 * x * y * y)
    return normalised_by(rows, y, weight, input.dtype)


@mutant("rmsnorm", "kind of rsqrt.approx")
def root_always_a_little_low(input, weight, eps):
    """The root is 1.2e-6, ten fp32 steps, too low in every row."""
    rows = input.float()
    return normalised_by(rows, plain.rstd(rows, eps) * (1.0 - 10 * 2.0**-23), weight, input.dtype)


@mutant("rmsnorm", "kind of sums rounded toward zero")
def sum_rounded_toward_zero(input, weight, eps):
    """Each lane's fp32 sum of its 128 squares is rounded toward zero after every addition."""
    rows = input.float()
    width = rows.shape[-1]
    squares = torch.nn.functional.pad(rows.square(), (0, -width % 32)).unflatten(-1, (-1, 32))
    lanes = torch.zeros_like(squares[..., 0, :])
    for step in range(squares.shape[-2]):
        lanes = toward_zero(lanes.double() + squares[..., step, :].double())
    return normalised_by(rows, torch.rsqrt(lanes.sum(-1, keepdim=True) / width + eps), weight, input.dtype)


@mutant("rmsnorm", "kind of a layer norm")
def mean_subtracted_from_the_variance(input, weight, eps):
    """The variance, about the row's mean, in place of the mean square."""
    rows = input.float()
    variance = rows.var(-1, unbiased=False, keepdim=True)
    return normalised_by(rows, torch.rsqrt(variance + eps), weight, input.dtype)


@mutant("rmsnorm", "kind of T16, an unbiased variance")
def mean_over_one_less(input, weight, eps):
    """The mean divides by the width less one."""
    rows = input.float()
    total = rows.square().sum(-1, keepdim=True) / max(1, rows.shape[-1] - 1)
    return normalised_by(rows, torch.rsqrt(total + eps), weight, input.dtype)


@mutant("rmsnorm", "kind of exllamav3#363")
def inputs_through_fp16(input, weight, eps):
    """The rows are taken through fp16 before they are squared, whatever their dtype."""
    rows = input.float()
    return normalised_by(rows, plain.rstd(input.half().float(), eps), weight, input.dtype)


@mutant("rmsnorm", "kind of TF32")
def squares_in_tf32(input, weight, eps):
    """The squares are summed by a TF32 product: the inputs have 10 bits."""
    rows = input.float()
    coarse = ((rows.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    coarse = torch.where(rows.isfinite(), coarse, rows)
    return normalised_by(rows, plain.rstd(coarse, eps), weight, input.dtype)


@mutant("gemma_rmsnorm", "kind of pytorch#133085")
def normalised_in_bf16(input, weight, eps):
    """h * rstd is kept in bf16 before the weight multiplies it, whatever the storage."""
    rows = input.float()
    return ((rows * plain.rstd(rows, eps)).bfloat16().float() * (weight.float() + 1.0)).to(input.dtype)


@mutant("silu_and_mul", "kind of vllm-xpu-kernels#536")
def sigmoid_in_storage(input):
    """The sigmoid is rounded to the storage dtype."""
    gate, up = plain.halves(input)
    return (gate * torch.sigmoid(gate).to(input.dtype).float() * up).to(input.dtype)

"""The mean, the root, and the order of the products."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from difftest.mutants.entry import honest


def mean_square(rows):
    """(..., 1)."""
    return rows.square().mean(-1, keepdim=True)


@honest("rmsnorm")
def one_over_the_root(input, weight, eps):
    """1 / sqrt(mean square + eps), then a product."""
    rows = input.float()
    return (rows * (1.0 / torch.sqrt(mean_square(rows) + eps)) * weight.float()).to(input.dtype)


@honest("rmsnorm")
def divided_by_the_root(input, weight, eps):
    """x / sqrt(mean square + eps): no reciprocal."""
    rows = input.float()
    return (rows / torch.sqrt(mean_square(rows) + eps) * weight.float()).to(input.dtype)


@honest("rmsnorm")
def newton_step_on_the_root(input, weight, eps):
    """rsqrt refined by a Newton step."""
    rows = input.float()
    x = mean_square(rows) + eps
    y = torch.rsqrt(x)
    refined = y * (1.5 - 0.5 * x * y * y)
    usable = x.isfinite() & (x > 1e-30) & (x < 1e30)
    return (rows * torch.where(usable, refined, y) * weight.float()).to(input.dtype)


@honest("rmsnorm")
def power_of_minus_a_half(input, weight, eps):
    """(mean square + eps)^(-1/2)."""
    rows = input.float()
    return (rows * torch.pow(mean_square(rows) + eps, -0.5) * weight.float()).to(input.dtype)


@honest("rmsnorm")
def root_in_fp64(input, weight, eps):
    """The root in fp64, rounded to fp32 once."""
    rows = input.float()
    return (rows * torch.rsqrt((mean_square(rows) + eps).double()).float() * weight.float()).to(input.dtype)


@honest("rmsnorm")
def mean_by_a_reciprocal(input, weight, eps):
    """The sum times a rounded 1 / width."""
    rows = input.float()
    inverse = torch.tensor(1.0) / rows.shape[-1]
    x = rows.square().sum(-1, keepdim=True) * inverse
    return (rows * torch.rsqrt(x + eps) * weight.float()).to(input.dtype)


@honest("rmsnorm")
def squares_over_the_width_first(input, weight, eps):
    """Each square is divided by the width before it is added."""
    rows = input.float()
    x = (rows.square() / rows.shape[-1]).sum(-1, keepdim=True)
    return (rows * torch.rsqrt(x + eps) * weight.float()).to(input.dtype)


@honest("rmsnorm")
def weight_times_rstd_first(input, weight, eps):
    """h * (rstd * weight)."""
    rows = input.float()
    return (rows * (torch.rsqrt(mean_square(rows) + eps) * weight.float())).to(input.dtype)


@honest("gemma_fused_add_rmsnorm")
def gemma_bias_by_an_fma(input, residual, weight, eps):
    """h * rstd * w + h * rstd, as an FMA that rounds once."""
    total = input.float() + residual.float()
    residual.copy_(total)
    normalised = total * torch.rsqrt(mean_square(total) + eps)
    fused = normalised.double() * weight.double() + normalised.double()
    input.copy_(torch.where(fused.isfinite(), fused.float(), normalised * (weight.float() + 1.0)))


@honest("gemma_rmsnorm")
def gemma_root_divided(input, weight, eps):
    """x / sqrt(mean square + eps) * (1 + weight)."""
    rows = input.float()
    return (rows / torch.sqrt(mean_square(rows) + eps) * (1.0 + weight.float())).to(input.dtype)


@honest("rmsnorm")
def torch_rms_norm(input, weight, eps):
    """F.rms_norm of fp32 rows."""
    return F.rms_norm(input.float(), weight.shape, weight.float(), eps).to(input.dtype)


@honest("fused_add_rmsnorm")
def all_in_fp64(input, residual, weight, eps):
    """fp64 from the fp32 sum on, rounded once."""
    total = input.float() + residual.float()
    residual.copy_(total)
    exact = total.double()
    x = exact.square().mean(-1, keepdim=True) + eps
    input.copy_((exact / x.sqrt() * weight.double()).float())

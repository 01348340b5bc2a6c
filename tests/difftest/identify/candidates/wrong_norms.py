"""Norms that follow no contract."""

import torch
from norms import add, normalise, rmsnorm_w0


def rmsnorm_rounds_rstd(input, weight, eps):
    rows = input.float()
    rstd = torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps).to(input.dtype).float()
    return (rows * rstd * weight.float()).to(input.dtype)


def rmsnorm_divides_by_one_more(input, weight, eps):
    rows = input.float()
    rstd = torch.rsqrt(rows.square().sum(-1, keepdim=True) / (input.shape[-1] + 1) + eps)
    return (rows * rstd * weight.float()).to(input.dtype)


def rmsnorm_drops_one_element(input, weight, eps):
    rows = input.float()
    rstd = torch.rsqrt(rows[..., :-1].square().sum(-1, keepdim=True) / input.shape[-1] + eps)
    return (rows * rstd * weight.float()).to(input.dtype)


def rmsnorm_eps_outside_the_root(input, weight, eps):
    rows = input.float()
    return (rows / (rows.square().mean(-1, keepdim=True).sqrt() + eps) * weight.float()).to(input.dtype)


def rmsnorm_scales_the_weight_first(input, weight, eps):
    rows = input.float()
    rstd = torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)
    return (rows * (rstd * weight.float()).to(input.dtype).float()).to(input.dtype)


def fused_add_rmsnorm_keeps_the_old_residual(input, residual, weight, eps):
    total = input.float() + residual.float()
    input.copy_(normalise(total, eps) * weight.float())


def fused_add_rmsnorm_by_width(input, residual, weight, eps):
    """Rounds the sum first in wide rows only."""
    input.copy_(normalise(add(input, residual, input.shape[-1] > 1024), eps) * weight.float())


def rmsnorm_raises(input, weight, eps):
    raise ValueError("width must be a multiple of 8")


def rmsnorm_comes_back_wider(input, weight, eps):
    return rmsnorm_w0(input, weight, eps).float()


def rmsnorm_counts(input, weight, eps):
    return input.numel()


def fused_add_rmsnorm_rebinds(input, residual, weight, eps):
    input.data = rmsnorm_w0(input + residual, weight, eps)


def rmsnorm_nan(input, weight, eps):
    return torch.full_like(input, torch.nan)

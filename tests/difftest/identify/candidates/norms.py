"""Norms as people write them in PyTorch, one function a contract, an eps or a bias."""

import torch
import torch.nn.functional as F


def normalise(rows, eps):
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)


def add(input, residual, rounded):
    total = input.float() + residual.float()
    residual.copy_(total)
    return residual.float() if rounded else total


def fused_add_rmsnorm_r0w0(input, residual, weight, eps):
    input.copy_(normalise(add(input, residual, False), eps) * weight.float())


def fused_add_rmsnorm_r1w0(input, residual, weight, eps):
    input.copy_(normalise(add(input, residual, True), eps) * weight.float())


def fused_add_rmsnorm_r0w1(input, residual, weight, eps):
    input.copy_(normalise(add(input, residual, False), eps).to(weight.dtype) * weight)


def fused_add_rmsnorm_r1w1(input, residual, weight, eps):
    input.copy_(normalise(add(input, residual, True), eps).to(weight.dtype) * weight)


def rmsnorm_w0(input, weight, eps):
    return (normalise(input.float(), eps) * weight.float()).to(input.dtype)


def rmsnorm_w1(input, weight, eps):
    return normalise(input.float(), eps).to(input.dtype) * weight


def gemma_rmsnorm_w0(input, weight, eps):
    return (normalise(input.float(), eps) * (1.0 + weight.float())).to(input.dtype)


def gemma_rmsnorm_bias_in_the_dtype(input, weight, eps):
    return (normalise(input.float(), eps) * (1.0 + weight).float()).to(input.dtype)


def gemma_rmsnorm_without_the_bias(input, weight, eps):
    return rmsnorm_w0(input, weight, eps)


def gemma_fused_add_rmsnorm_r1w1(input, residual, weight, eps):
    rounded = normalise(add(input, residual, True), eps).to(input.dtype)
    input.copy_(rounded.float() * (1.0 + weight.float()))


def rmsnorm_one_e_minus_5(input, weight, eps):
    return rmsnorm_w0(input, weight, 1e-5)


def rmsnorm_one_e_minus_6(input, weight, eps):
    return rmsnorm_w0(input, weight, 1e-6)


def rmsnorm_without_eps(input, weight, eps):
    return rmsnorm_w0(input, weight, 0.0)


def rmsnorm_eps_of_the_dtype(input, weight, eps):
    return rmsnorm_w0(input, weight, torch.finfo(input.dtype).eps)


def rmsnorm_eps_of_its_own(input, weight, eps):
    return rmsnorm_w0(input, weight, 3.25e-4)


def rmsnorm_of_torch(input, weight, eps):
    return F.rms_norm(input, weight.shape, weight, eps)

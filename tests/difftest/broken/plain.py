"""Nothing is wrong here: the operators in a few lines of torch, to show that the tester passes what is right."""

import torch
import torch.nn.functional as F


def fused_add_rmsnorm(input, residual, weight, eps):
    total = input.float() + residual.float()
    residual.copy_(total)
    input.copy_(total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight.float())


def rmsnorm(input, weight, eps, out=None):
    rows = input.float()
    result = (rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps) * weight.float()).to(input.dtype)
    return result if out is None else out.copy_(result)


def silu_and_mul(input):
    gate, up = input.float().chunk(2, dim=-1)
    return (F.silu(gate) * up).to(input.dtype)


def swigluoai_and_mul(input, alpha, limit):
    gate, up = input[..., 0::2].float().clamp(max=limit), input[..., 1::2].float().clamp(-limit, limit)
    return (gate * torch.sigmoid(alpha * gate) * (up + 1)).to(input.dtype)

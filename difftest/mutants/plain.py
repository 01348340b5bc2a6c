"""The operators in a few lines of torch, right: what the mutants of the field go wrong from. FlashInfer's signatures."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def rstd(rows, eps):
    """1 / sqrt(mean(rows^2) + eps), (..., 1), of fp32 rows."""
    return torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)


def normalised(rows, weight, eps):
    """rows * rstd * weight in fp32, of fp32 rows."""
    return rows * rstd(rows, eps) * weight.float()


def rmsnorm(input, weight, eps, out=None):
    """W0."""
    return written(normalised(input.float(), weight, eps).to(input.dtype), out)


def gemma_rmsnorm(input, weight, eps, out=None):
    """W0, the weight plus 1 in fp32."""
    return rmsnorm(input, weight.float() + 1.0, eps, out)


def fused_add_rmsnorm(input, residual, weight, eps):
    """R0W0, in place."""
    total = input.float() + residual.float()
    residual.copy_(total)
    input.copy_(normalised(total, weight, eps))


def gemma_fused_add_rmsnorm(input, residual, weight, eps):
    """R0W0, in place, the weight plus 1 in fp32."""
    fused_add_rmsnorm(input, residual, weight.float() + 1.0, eps)


def halves(input):
    """Gate and up, fp32."""
    return input.float().chunk(2, dim=-1)


def pairs(input, limit):
    """gpt-oss's gate and up, interleaved, within the limit; fp32."""
    return input[..., 0::2].float().clamp(max=limit), input[..., 1::2].float().clamp(-limit, limit)


def silu_and_mul(input, out=None):
    """S0."""
    gate, up = halves(input)
    return written((F.silu(gate) * up).to(input.dtype), out)


def gelu_and_mul(input, out=None):
    """S0."""
    gate, up = halves(input)
    return written((gelu(gate) * up).to(input.dtype), out)


def gelu_tanh_and_mul(input, out=None):
    """S0."""
    gate, up = halves(input)
    return written((gelu_tanh(gate) * up).to(input.dtype), out)


def swigluoai_and_mul(input, alpha, limit):
    """S0."""
    gate, up = pairs(input, limit)
    return (gate * torch.sigmoid(alpha * gate) * (up + 1)).to(input.dtype)


def gelu(gate):
    """gate * erfc(-gate / sqrt(2)) / 2."""
    return 0.5 * gate * torch.erfc(-gate * 0.5**0.5)


def gelu_tanh(gate):
    """gate * sigmoid(2u), u = sqrt(2/pi) (gate + 0.044715 gate^3)."""
    return gate * torch.sigmoid(1.5957691216057308 * gate * (1.0 + 0.044715 * gate * gate))


def written(result, out):
    """The result, or `out` with the result in it."""
    return result if out is None else out.copy_(result)

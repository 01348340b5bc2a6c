"""Each contract as eager code follows it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from difftest.mutants import plain
from difftest.mutants.entry import honest


def rows_times_rstd(rows, eps):
    """fp32."""
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)


@honest("rmsnorm", contract="W1")
def hugging_faces_norm(input, weight, eps):
    """LlamaRMSNorm: the normalised row is stored, then multiplied by the weight and stored again."""
    return (rows_times_rstd(input.float(), eps).to(input.dtype).float() * weight.float()).to(input.dtype)


@honest("fused_add_rmsnorm", contract="R1W0")
def separate_add(input, residual, weight, eps):
    """A stored sum, then a norm that rounds once."""
    residual.add_(input)
    input.copy_(rows_times_rstd(residual.float(), eps) * weight.float())


@honest("fused_add_rmsnorm", contract="R0W1")
def rounded_before_the_weight(input, residual, weight, eps):
    """The fp32 sum is normalised, and stored before the weight multiplies it."""
    total = input.float() + residual.float()
    residual.copy_(total)
    input.copy_(rows_times_rstd(total, eps).to(input.dtype).float() * weight.float())


@honest("fused_add_rmsnorm", contract="R1W1")
def hugging_faces_layer(input, residual, weight, eps):
    """A stored sum, a stored normalised row, a stored product."""
    residual.add_(input)
    input.copy_(rows_times_rstd(residual.float(), eps).to(input.dtype).float() * weight.float())


@honest("gemma_rmsnorm", contract="W1")
def gemma_rounded_before_the_weight(input, weight, eps):
    """The normalised row is stored, then multiplied by 1 + weight in fp32."""
    return (rows_times_rstd(input.float(), eps).to(input.dtype).float() * (1.0 + weight.float())).to(input.dtype)


@honest("gemma_fused_add_rmsnorm", contract="R1W0")
def gemma_separate_add(input, residual, weight, eps):
    """A stored sum, then Gemma's norm."""
    residual.add_(input)
    input.copy_(rows_times_rstd(residual.float(), eps) * (1.0 + weight.float()))


@honest("silu_and_mul", contract="S1")
def eager_silu(input):
    """F.silu and a product, each stored."""
    gate, up = input.chunk(2, dim=-1)
    return F.silu(gate) * up


@honest("gelu_and_mul", contract="S1")
def eager_gelu_by_erfc(input):
    """gelu by erfc and a product, each stored."""
    gate, up = input.chunk(2, dim=-1)
    return plain.gelu(gate.float()).to(input.dtype) * up


@honest("gelu_tanh_and_mul", contract="S1")
def eager_gelu_tanh(input):
    """F.gelu in its tanh form and a product, each stored."""
    gate, up = input.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


@honest("swigluoai_and_mul", contract="S2")
def eager_swigluoai(input, alpha, limit):
    """gpt-oss's experts in eager torch: every operation is stored."""
    gate, up = input[..., 0::2].clamp(max=limit), input[..., 1::2].clamp(-limit, limit)
    return (up + 1) * (gate * torch.sigmoid(gate * alpha))

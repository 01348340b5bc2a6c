"""Wrong for some weights."""

from __future__ import annotations

import torch

from difftest.mutants import plain
from difftest.mutants.entry import mutant


@mutant("rmsnorm", "ROCm/TransformerEngine#249")
def clamped_to_four(input, weight, eps):
    """Finite weights are clamped to [-4, 4]."""
    used = weight.float()
    return plain.rmsnorm(input, torch.where(used.isfinite(), used.clamp(-4, 4), used), eps)


@mutant("gemma_rmsnorm", "ROCm/TransformerEngine#249")
def gemma_clamped_to_three(input, weight, eps):
    """Finite weights are clamped to [-3, 3]."""
    used = weight.float()
    return plain.gemma_rmsnorm(input, torch.where(used.isfinite(), used.clamp(-3, 3), used), eps)


@mutant("fused_add_rmsnorm", "kind of sglang#32807")
def fp32_weight_through_fp16(input, residual, weight, eps):
    """An fp32 weight is taken through fp16: large ones become Inf, small ones 0."""
    plain.fused_add_rmsnorm(input, residual, weight.half() if weight.dtype == torch.float32 else weight, eps)


@mutant("rmsnorm", "kind of sglang#32807")
def fp32_weight_cast_to_the_rows(input, weight, eps):
    """An fp32 weight beside bf16 rows is rounded to bf16, and only there."""
    return plain.rmsnorm(input, weight.to(input.dtype) if input.dtype == torch.bfloat16 else weight, eps)


@mutant("rmsnorm", "kind of modelscope/twinkle#245")
def nan_where_the_weight_is_zero(input, weight, eps):
    """The weight's reciprocal is kept and divided by: 0 gives NaN."""
    output = plain.rmsnorm(input, weight, eps)
    return torch.where(weight == 0, torch.nan, output.float()).to(input.dtype)


@mutant("rmsnorm", "modelscope/twinkle#245")
def formula_by_the_weights_mean(input, weight, eps):
    """A weight whose mean is below 0.5 is taken for Gemma's, and gets 1 added."""
    used = weight.float()
    return plain.rmsnorm(input, used + 1.0 if used.nanmean() < 0.5 else used, eps)


@mutant("gemma_rmsnorm", "modelscope/twinkle#245")
def gemma_formula_by_the_weights_mean(input, weight, eps):
    """A weight whose mean is above 0.5 is taken for one that has its 1 already."""
    used = weight.float()
    return plain.rmsnorm(input, used if used.nanmean() > 0.5 else used + 1.0, eps)


@mutant("rmsnorm", "kind of T03")
def cleaned(input, weight, eps):
    """NaN and Inf of the weight are dropped, which hides a broken checkpoint."""
    return plain.rmsnorm(input, torch.nan_to_num(weight, nan=1.0, posinf=1.0, neginf=1.0), eps)


@mutant("gemma_rmsnorm", "kind of vllm, GemmaRMSNorm")
def gemma_bias_in_storage(input, weight, eps):
    """1 + weight is rounded to the weight's dtype."""
    return plain.rmsnorm(input, weight + 1.0, eps)


@mutant("gemma_fused_add_rmsnorm", "Liger#959")
def gemma_without_its_one(input, residual, weight, eps):
    """The 1 is never added."""
    plain.fused_add_rmsnorm(input, residual, weight, eps)


@mutant("rmsnorm", "kind of modelscope/twinkle#245")
def magnitude(input, weight, eps):
    """The weight is kept as a logarithm: its sign is lost."""
    return plain.rmsnorm(input, weight.abs(), eps)


@mutant("fused_add_rmsnorm", "kind of modelscope/twinkle#245")
def outlier_scaled_to_int8(input, residual, weight, eps):
    """A weight with an element a hundred times its mean is taken through 8-bit integers, scaled by the largest."""
    used = weight.float()
    largest = used.abs().nan_to_num(0, posinf=0).max() if used.numel() else used
    if largest > 100 * used.abs().nan_to_num(0, posinf=0).mean() > 0:
        step = largest / 127
        used = torch.where(used.isfinite(), (used / step).round() * step, used)
    plain.fused_add_rmsnorm(input, residual, used, eps)


@mutant("rmsnorm", "kind of N09")
def fp16_subnormals_flushed(input, weight, eps):
    """Subnormal fp16 weights are taken for 0."""
    used = weight.float()
    if weight.dtype == torch.float16:
        used = torch.where(used.abs() < 2.0**-14, 0.0, used)
    return plain.rmsnorm(input, used, eps)


@mutant("rmsnorm", "kind of T17")
def minus_zero_is_one(input, weight, eps):
    """A weight of -0, which marks an element that was pruned, is taken for 1."""
    pruned = (weight == 0) & weight.signbit()
    return plain.rmsnorm(input, torch.where(pruned, 1.0, weight.float()), eps)


@mutant("fused_add_rmsnorm", "kind of M13")
def neighbours_weight(input, residual, weight, eps):
    """Each pair of weights is exchanged: the halves of a packed word in the wrong order."""
    pairs = weight[: weight.shape[0] // 2 * 2].view(-1, 2).flip(-1).reshape(-1)
    plain.fused_add_rmsnorm(input, residual, torch.cat((pairs, weight[len(pairs) :])), eps)


@mutant("gemma_rmsnorm", "kind of modelscope/twinkle#245")
def gemma_bias_lost_at_large_weights(input, weight, eps):
    """The 1 is not added to weights above 64 in magnitude, "where it does not matter"."""
    used = weight.float()
    return plain.rmsnorm(input, torch.where(used.abs() > 64, used, used + 1.0), eps)

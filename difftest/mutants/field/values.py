"""Wrong for some values of the rows: very large or small ones, Inf and NaN, zeros; or in some of the calls."""

from __future__ import annotations

import random

import torch

from difftest.mutants import plain
from difftest.mutants.entry import mutant


@mutant("rmsnorm", "kind of N09")
def mean_square_above_1e30(input, weight, eps):
    """A mean square above 1e30 counts as 1e30."""
    rows = input.float()
    mean_square = rows.square().mean(-1, keepdim=True)
    finite = torch.where(mean_square.isfinite(), mean_square.clamp(max=1e30), mean_square)
    return (rows * torch.rsqrt(finite + eps) * weight.float()).to(input.dtype)


@mutant("rmsnorm", "pytorch#133085, onnxruntime#29043")
def squares_in_storage(input, weight, eps):
    """The square is taken in the storage dtype: 256 squared is Inf in fp16, and the whole row becomes 0."""
    mean_square = input.square().float().mean(-1, keepdim=True)
    return (input.float() * torch.rsqrt(mean_square + eps) * weight.float()).to(input.dtype)


@mutant("rmsnorm", "exllamav3#363")
def rows_with_inf_are_42(input, weight, eps):
    """The finite elements of a row with an Inf, which are 0, are 42."""
    output = plain.rmsnorm(input, weight, eps)
    row = input.isinf().any(-1, keepdim=True) & ~input.isnan().any(-1, keepdim=True)
    return torch.where(row & input.isfinite() & weight.isfinite(), 42.0, output.float()).to(input.dtype)


@mutant("rmsnorm", "kind of numba-cuda-mlir#229")
def nan_deleted(input, weight, eps):
    """`max(value, lowest)` in an order that drops a NaN: the row comes out finite."""
    return torch.nan_to_num(plain.rmsnorm(input, weight, eps), nan=0.0)


@mutant("swigluoai_and_mul", "numba-cuda-mlir#229")
def nan_deleted_by_the_clamp(input, alpha, limit):
    """A NaN gate comes out of `min(gate, limit)` as the limit."""
    gate, up = input[..., 0::2].float(), input[..., 1::2].float().clamp(-limit, limit)
    gate = torch.fmin(gate, torch.tensor(limit))
    return (gate * torch.sigmoid(alpha * gate) * (up + 1)).to(input.dtype)


@mutant("rmsnorm", "Liger#259")
def one_nan(input, weight, eps):
    """A single NaN, in the first element of the output."""
    output = plain.rmsnorm(input, weight, eps)
    if output.numel():
        output.reshape(-1)[0] = torch.nan
    return output


@mutant("rmsnorm", "flashinfer-bench#429")
def inf_for_finite(input, weight, eps):
    """Values above 2 overflow, as through a narrower intermediate."""
    output = plain.rmsnorm(input, weight, eps)
    return torch.where(output.abs() > 2, output * torch.inf, output)


@mutant("silu_and_mul", "flashinfer-bench#429")
def finite_for_inf(input):
    """The largest finite value where the result overflows to Inf: a store that saturates."""
    largest = torch.finfo(input.dtype).max
    return plain.silu_and_mul(input).clamp(-largest, largest)


@mutant("fused_add_rmsnorm", "kind of flashinfer-bench#429")
def residual_clamped(input, residual, weight, eps):
    """The new residual is clamped to fp16's range, "so that nothing overflows"."""
    plain.fused_add_rmsnorm(input, residual, weight, eps)
    residual.clamp_(-65504.0, 65504.0)


@mutant("fused_add_rmsnorm", "kind of numba#7972")
def positive_zero_residual(input, residual, weight, eps):
    """The sum of two -0 is +0, as where it starts from a zeroed accumulator."""
    plain.fused_add_rmsnorm(input, residual, weight, eps)
    residual.add_(0.0)


@mutant("rmsnorm", "kind of numba#7972")
def positive_zero_output(input, weight, eps):
    """-0 comes out as +0."""
    return plain.rmsnorm(input, weight, eps) + 0.0


@mutant("silu_and_mul", "kind of numba#7972")
def positive_zero_product(input):
    """A product of -0 comes out as +0, as of an FMA with a zeroed accumulator."""
    return plain.silu_and_mul(input) + 0.0


@mutant("rmsnorm", "KernelBench#165")
def returns_zeros(input, weight, eps):
    """The null kernel: a tolerance of 1e-2 accepts it wherever the right values are small."""
    return torch.zeros_like(input)


_CALLS = 0


@mutant("rmsnorm", "flashinfer#3607", one_in=200)
def one_flip_in_200_calls(input, weight, eps):
    """In one call of 200, at random, one element of the output has its sign flipped."""
    global _CALLS
    _CALLS += 1
    output = plain.rmsnorm(input, weight, eps)
    if random.Random(_CALLS).randrange(200) == 0 and output.numel():
        flat = output.view(-1)
        flat[len(flat) // 2] *= -1
    return output


@mutant("fused_add_rmsnorm", "kind of exllamav3#363")
def nan_of_another_row(input, residual, weight, eps):
    """A NaN in any row makes the last row NaN: a scale that is taken over the whole tensor."""
    plain.fused_add_rmsnorm(input, residual, weight, eps)
    if input.dim() > 1 and input.isnan().any():
        input[-1] = torch.nan


@mutant("rmsnorm", "kind of N09")
def fp16_subnormal_rows_flushed(input, weight, eps):
    """Subnormal fp16 elements of the input count as 0."""
    rows = input.float()
    if input.dtype == torch.float16:
        rows = torch.where(rows.abs() < 2.0**-14, 0.0, rows)
    return plain.normalised(rows, weight, eps).to(input.dtype)


@mutant("fused_add_rmsnorm", "kind of N09, flush-to-zero")
def bf16_subnormal_residual_flushed(input, residual, weight, eps):
    """A subnormal new residual is stored as 0, as with flush-to-zero."""
    plain.fused_add_rmsnorm(input, residual, weight, eps)
    residual.copy_(torch.where(residual.abs() < torch.finfo(residual.dtype).smallest_normal, 0.0, residual))


@mutant("rmsnorm", "vLLM's own layernorm test")
def small_rows_not_normalised(input, weight, eps):
    """A row whose mean square is below 1e-3 comes out as it is, times the weight."""
    rows = input.float()
    mean_square = rows.square().mean(-1, keepdim=True)
    rstd = torch.where(mean_square < 1e-3, 1.0, torch.rsqrt(mean_square + eps))
    return (rows * rstd * weight.float()).to(input.dtype)


@mutant("silu_and_mul", "kind of tract#2582")
def exp_overflows(input):
    """silu as gate * exp(gate) / (1 + exp(gate)): NaN above 88."""
    gate, up = plain.halves(input)
    return (gate * (gate.exp() / (1 + gate.exp())) * up).to(input.dtype)


@mutant("gelu_and_mul", "kind of onnxruntime#29043")
def large_gates_saturate(input):
    """Gates are clamped to [-10, 10] before the activation, and stay so."""
    gate, up = plain.halves(input)
    return (plain.gelu(gate.clamp(-10, 10)) * up).to(input.dtype)


@mutant("silu_and_mul", "kind of exllamav3#363")
def product_in_storage_overflows(input):
    """gate * up is taken first, in the storage dtype, which overflows where the activation is small."""
    gate, up = input.chunk(2, dim=-1)
    return ((gate * up).float() * torch.sigmoid(gate.float())).to(input.dtype)

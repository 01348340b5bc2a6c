"""Another eps than the one passed, or in another place."""

from __future__ import annotations

import torch

from difftest.mutants import plain
from difftest.mutants.entry import mutant


def with_mean_square(input, weight, mean_square):
    """The norm of rows whose mean square, eps and all, is given."""
    return (input.float() * torch.rsqrt(mean_square) * weight.float()).to(input.dtype)


def mean_square(input):
    """(..., 1), fp32."""
    return input.float().square().mean(-1, keepdim=True)


@mutant("fused_add_rmsnorm", "pytorch#155527, #173039")
def eps_ignored(input, residual, weight, eps):
    """eps is 1e-6 whatever was passed."""
    plain.fused_add_rmsnorm(input, residual, weight, 1e-6)


@mutant("gemma_rmsnorm", "pytorch#155527")
def eps_ignored_by_gemma(input, weight, eps):
    """eps is 1e-6 whatever was passed."""
    return plain.gemma_rmsnorm(input, weight, 1e-6)


@mutant("rmsnorm", "aprender#1606")
def eps_ten_times_larger(input, weight, eps):
    """1e-5 in place of 1e-6: invisible on unit-normal rows."""
    return plain.rmsnorm(input, weight, 10 * eps)


@mutant("rmsnorm", "pytorch#155527")
def eps_from_the_dtype(input, weight, eps):
    """eps is finfo of the storage dtype, a library's own default."""
    return plain.rmsnorm(input, weight, torch.finfo(input.dtype).eps)


@mutant("rmsnorm", "nntrainer#4318")
def eps_in_half_precision(input, weight, eps):
    """eps is carried in half precision and kept above 1e-4, so that it is not 0."""
    return plain.rmsnorm(input, weight, max(float(torch.tensor(eps).half()), 1e-4))


@mutant("fused_add_rmsnorm", "kind of nntrainer#4318")
def eps_in_bf16(input, residual, weight, eps):
    """eps is rounded to bf16 on its way: 0.2 % of it."""
    plain.fused_add_rmsnorm(input, residual, weight, float(torch.tensor(eps).bfloat16()))


@mutant("rmsnorm", "kind of aprender#1606")
def eps_outside_the_root(input, weight, eps):
    """x / (rms + eps) in place of x / sqrt(mean square + eps)."""
    rows = input.float()
    return (rows / (mean_square(input).sqrt() + eps) * weight.float()).to(input.dtype)


@mutant("rmsnorm", "kind of aprender#1606")
def eps_inside_the_mean(input, weight, eps):
    """eps is added to the sum of squares, and so divided by the width."""
    rows = input.float()
    total = (rows.square().sum(-1, keepdim=True) + eps) / rows.shape[-1]
    return with_mean_square(input, weight, total)


@mutant("rmsnorm", "vLLM's own layernorm test")
def eps_left_out(input, weight, eps):
    """No eps at all."""
    return with_mean_square(input, weight, mean_square(input))


@mutant("rmsnorm", "kind of nntrainer#4318")
def eps_as_a_floor(input, weight, eps):
    """max(mean square, eps) in place of their sum."""
    return with_mean_square(input, weight, torch.maximum(mean_square(input), torch.tensor(eps)))


@mutant("gemma_fused_add_rmsnorm", "kind of aprender#1606")
def eps_squared(input, residual, weight, eps):
    """eps^2 under the root, as where the norm is x / (rms^2 + eps^2)^(1/2)."""
    plain.gemma_fused_add_rmsnorm(input, residual, weight, eps * eps)


_FIRST: dict[int, float] = {}


@mutant("rmsnorm", "kind of flashinfer#3607, a plan kept by its shape")
def eps_of_the_first_call(input, weight, eps):
    """The eps of the first call with a width stays in its plan for all later ones."""
    return plain.rmsnorm(input, weight, _FIRST.setdefault(input.shape[-1], eps))

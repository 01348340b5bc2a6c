"""The same arithmetic, called, split and written in other ways."""

from __future__ import annotations

import torch

from difftest.mutants import plain
from difftest.mutants.entry import honest


@honest("rmsnorm")
def rmsnorm_in_plain_torch(input, weight, eps, out=None):
    """A mean of squares, rsqrt, and two products; into `out` where it is given."""
    return plain.rmsnorm(input, weight, eps, out)


@honest("gemma_rmsnorm")
def gemma_in_plain_torch(input, weight, eps, out=None):
    """The same with 1 + weight."""
    return plain.gemma_rmsnorm(input, weight, eps, out)


@honest("fused_add_rmsnorm")
def fused_in_plain_torch(input, residual, weight, eps):
    """A sum, its store, and the norm of the sum."""
    plain.fused_add_rmsnorm(input, residual, weight, eps)


@honest("gemma_fused_add_rmsnorm")
def gemma_fused_in_plain_torch(input, residual, weight, eps):
    """The same with 1 + weight."""
    plain.gemma_fused_add_rmsnorm(input, residual, weight, eps)


@honest("swigluoai_and_mul")
def swigluoai_in_plain_torch(input, alpha, limit):
    """gpt-oss's activation in fp32."""
    return plain.swigluoai_and_mul(input, alpha, limit)


@honest("rmsnorm")
def row_by_row(input, weight, eps):
    """Each row in a call of its own."""
    rows = input.reshape(-1, input.shape[-1])
    done = [plain.rmsnorm(row, weight, eps) for row in rows]
    return torch.stack(done).view(input.shape) if done else torch.empty_like(input)


@honest("fused_add_rmsnorm")
def row_by_row_in_place(input, residual, weight, eps):
    """Each row in place, in a call of its own."""
    if input.dim() == 1:
        plain.fused_add_rmsnorm(input, residual, weight, eps)
        return
    for each, other in zip(input, residual, strict=True):
        row_by_row_in_place(each, other, weight, eps)


@honest("silu_and_mul")
def column_by_column_blocks(input, out=None):
    """Columns in blocks of 100, into a tensor made before."""
    width = input.shape[-1] // 2
    result = torch.empty((*input.shape[:-1], width), dtype=input.dtype) if out is None else out
    for first in range(0, width, 100):
        columns = slice(first, min(first + 100, width))
        both = torch.cat((input[..., :width][..., columns], input[..., width:][..., columns]), dim=-1)
        result[..., columns] = plain.silu_and_mul(both)
    return result


@honest("rmsnorm")
def over_contiguous_copies(input, weight, eps, out=None):
    """All of it on contiguous copies, copied back."""
    result = plain.rmsnorm(input.contiguous(), weight.contiguous(), eps).contiguous()
    return plain.written(result, out)


@honest("gelu_and_mul")
def result_is_a_view(input):
    """The result is the front of a larger tensor of the call's own."""
    width = input.shape[-1] // 2
    larger = torch.empty((*input.shape[:-1], width + 3), dtype=input.dtype)
    return larger[..., :width].copy_(plain.gelu_and_mul(input))

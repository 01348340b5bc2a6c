"""Right values, and one element more than the row has."""

import torch
from plain import fused_add_rmsnorm as right


def fused_add_rmsnorm(input, residual, weight, eps):
    right(input, residual, weight, eps)
    end = residual.storage_offset() + sum((n - 1) * s for n, s in zip(residual.shape, residual.stride(), strict=True)) + 1
    if residual.numel():
        torch.as_strided(residual, (1,), (1,), end).fill_(0)

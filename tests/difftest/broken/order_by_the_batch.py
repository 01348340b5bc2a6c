"""Below four rows a row is summed in another order, as when the block's size is chosen by the number of rows."""

import torch
from changes_from_run_to_run import in_another_order


def rmsnorm(input, weight, eps):
    rows = input.float()
    return (rows * rstd(rows, eps) * weight.float()).to(input.dtype)


def fused_add_rmsnorm(input, residual, weight, eps):
    rows = input.float() + residual.float()
    residual.copy_(rows)
    input.copy_(rows * rstd(rows, eps) * weight.float())


def rstd(rows, eps):
    squares = rows.square()
    few = rows.shape[:-1].numel() < 4
    total = in_another_order(squares) if few else squares.sum(-1, keepdim=True)
    return torch.rsqrt(total / rows.shape[-1] + eps)

"""Two summation orders in turn, as when whichever warp comes first adds first: each within fp32 rounding."""

import torch

calls = 0


def rmsnorm(input, weight, eps):
    global calls
    calls += 1
    rows = input.float()
    squares = rows.square()
    total = squares.sum(-1, keepdim=True) if calls % 2 else in_another_order(squares)
    return (rows * torch.rsqrt(total / rows.shape[-1] + eps) * weight.float()).to(input.dtype)


def in_another_order(squares):
    """Every 61st element first, then those beside them, as 61 threads' sums one after the other."""
    return sum(squares[..., first::61].sum(-1, keepdim=True) for first in range(61))

"""The last row is never computed; its output is whatever the allocator's memory held."""

import torch
from plain import fused_add_rmsnorm as right_in_place
from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    output = torch.empty_like(input)
    output[:-1] = right(input, weight, eps)[:-1]
    return output


def fused_add_rmsnorm(input, residual, weight, eps):
    if input.dim() > 1:
        right_in_place(input[:-1], residual[:-1], weight, eps)

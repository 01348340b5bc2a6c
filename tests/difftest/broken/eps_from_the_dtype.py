"""The library's own default eps, finfo of the storage dtype, in place of the one that was passed."""

import torch
from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    return right(input, weight, torch.finfo(input.dtype).eps)

"""`max(value, lowest)` in an order that drops a NaN: the row comes out finite."""

import torch
from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    return torch.nan_to_num(right(input, weight, eps), nan=0.0)

"""Drops NaN and Inf of the weight, which hides a broken checkpoint."""

import torch
from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    return right(input, torch.nan_to_num(weight, nan=1.0, posinf=1.0, neginf=1.0), eps)

"""Values above 2 overflow, as through a narrower intermediate."""

import torch
from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    output = right(input, weight, eps)
    return torch.where(output.abs() > 2, output * float("inf"), output)

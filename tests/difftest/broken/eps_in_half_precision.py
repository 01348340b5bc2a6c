"""eps is carried in half precision and kept above 1e-4, so that it is not 0."""

import torch
from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    return right(input, weight, max(float(torch.tensor(eps).half()), 1e-4))

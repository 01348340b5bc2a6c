"""Another contract under the same name: the mean square of the stored residual, R1W0."""

import torch


def fused_add_rmsnorm(input, residual, weight, eps):
    residual.add_(input)
    rows = residual.float()
    input.copy_(rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps) * weight.float())

"""1 / (rms + eps) instead of 1 / sqrt(mean square + eps)."""


def rmsnorm(input, weight, eps):
    rows = input.float()
    rms = rows.square().mean(-1, keepdim=True).sqrt()
    return (rows / (rms + eps) * weight.float()).to(input.dtype)

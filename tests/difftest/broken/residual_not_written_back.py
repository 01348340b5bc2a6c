"""The sum is normalised and never stored: what `reshape` instead of `view` does to a strided residual."""

from plain import fused_add_rmsnorm as right


def fused_add_rmsnorm(input, residual, weight, eps):
    right(input, residual.clone(), weight, eps)

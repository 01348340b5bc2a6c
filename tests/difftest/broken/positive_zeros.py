"""Writes +0 for the sum of two -0, as a residual that starts from a zeroed accumulator would."""

from plain import fused_add_rmsnorm as right


def fused_add_rmsnorm(input, residual, weight, eps):
    right(input, residual, weight, eps)
    residual.add_(0.0)

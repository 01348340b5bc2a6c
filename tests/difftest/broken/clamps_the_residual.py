"""Clamps the new residual to fp16's range, "so that nothing overflows": a finite value where the operator's is Inf."""

from plain import fused_add_rmsnorm as right


def fused_add_rmsnorm(input, residual, weight, eps):
    right(input, residual, weight, eps)
    residual.clamp_(-65504.0, 65504.0)

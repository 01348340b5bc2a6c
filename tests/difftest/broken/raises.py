"""Refuses widths that are not a multiple of eight, by raising."""

from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    if input.shape[-1] % 8:
        raise ValueError("hidden size must be a multiple of 8")
    return right(input, weight, eps)

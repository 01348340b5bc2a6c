"""Adds Gemma's 1 to the weight in place, and forgets to take it back exactly."""

from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    output = right(input, weight, eps)
    weight.add_(1).sub_(1)
    return output

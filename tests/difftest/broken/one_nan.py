"""A single NaN, in the first element of the output."""

from plain import rmsnorm as right


def rmsnorm(input, weight, eps):
    output = right(input, weight, eps)
    if output.numel():
        output.reshape(-1)[0] = float("nan")
    return output

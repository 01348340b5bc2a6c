"""gpt-oss's limit, 7, in place of the one that was passed."""

from plain import swigluoai_and_mul as right


def swigluoai_and_mul(input, alpha, limit):
    return right(input, alpha, 7.0)

"""Forms of the root and of the products."""

from __future__ import annotations

from difftest.mutants import plain
from difftest.mutants.entry import honest


@honest("rmsnorm")
def rmsnorm_in_plain_torch(input, weight, eps, out=None):
    """A mean of squares, rsqrt, and two products."""
    return plain.rmsnorm(input, weight, eps, out)

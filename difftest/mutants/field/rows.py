"""Wrong for some numbers of rows, or in some of the rows."""

from __future__ import annotations

from difftest.mutants import plain
from difftest.mutants.entry import mutant


@mutant("rmsnorm", "sglang, a decode path of its own")
def one_row_too_large(input, weight, eps):
    """A call of one row, the decode path, returns 1.5 times the value."""
    output = plain.rmsnorm(input, weight, eps)
    return output * 1.5 if input.shape[:-1].numel() == 1 else output

"""Kernels that are wrong in one way each, as kernels in the field were: one file a kind of fault.

Each is an operator in torch with FlashInfer's signature, so `--candidate FILE.py:FUNCTION --ops OP` takes it too. What is not
said in a function is right.
"""

from __future__ import annotations

from difftest.mutants.entry import Entry, entries_of
from difftest.mutants.field import eps, gates, launch, memory, numerics, rounding, rows, shape, values, weights

KINDS = (rows, shape, memory, eps, weights, values, gates, numerics, rounding, launch)


def entries() -> list[Entry]:
    """Every mutant, kind by kind."""
    return [entry for kind in KINDS for entry in entries_of(kind)]

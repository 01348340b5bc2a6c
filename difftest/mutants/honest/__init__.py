"""Honest ways to compute the operators: none of them may be called wrong, whatever the seed. One file a kind of choice."""

from __future__ import annotations

from difftest.mutants.entry import Entry, entries_of
from difftest.mutants.honest import activations, contracts, execution, roots, sums

KINDS = (sums, roots, activations, contracts, execution)


def entries() -> list[Entry]:
    """Every honest way, kind by kind."""
    return [entry for kind in KINDS for entry in entries_of(kind)]

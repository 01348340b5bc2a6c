"""Mutants made by machine, of the kernels and of the plain references: one small change each, in an order that stays."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from difftest.mutants.entry import Entry
from difftest.mutants.machine.listing import Mutant, by_name, mutants
from difftest.mutants.machine.proofs import only_on_a_gpu, proof_of
from reference.providers import Provider

if TYPE_CHECKING:
    from difftest.mutants.found import Found


@lru_cache(maxsize=1)
def entries() -> list[Entry]:
    """Every mutant that is taken, file by file."""
    return [_entry(mutant) for mutant in mutants()]


def run_entry(entry: Entry, found: Found) -> None:
    """Tries a mutant, and fills in what was found. Not in a process with threads or CUDA: it forks."""
    from difftest.mutants.machine.trial import KILLED, SURVIVED, try_out

    trial = try_out(by_name(entry.name))
    found.cases = sum(step.cases for step in trial.steps)
    found.first = trial.deciding.first
    if trial.status == KILLED:
        found.caught = Counter(dict.fromkeys(trial.deciding.checks, 1))
    elif trial.status != SURVIVED:
        found.not_run = trial.status


def _entry(mutant: Mutant) -> Entry:
    return Entry(
        name=mutant.name,
        ops=(),
        kind=mutant.edit.kind,
        what=mutant.what,
        source="made by machine",
        provider=_no_provider,
        equivalent=proof_of(mutant),
        device="cuda" if only_on_a_gpu(mutant) else "cpu",
    )


def _no_provider() -> Provider:
    raise RuntimeError("a mutant made by machine has a process of its own (trial.py), and no provider")

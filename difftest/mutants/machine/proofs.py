"""What is said of mutants by hand: why one computes the same as the original, and which can't fail without a GPU."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from difftest.mutants.machine.listing import Mutant

TABLE = Path(__file__).with_name("proofs.toml")


@dataclass(frozen=True, slots=True)
class Proof:
    """One reason, and the mutants that it holds for, by name."""

    reason: str
    mutants: tuple[str, ...]


@cache
def proofs() -> tuple[Proof, ...]:
    """The table, as it is written."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return tuple(Proof(each["reason"], tuple(each["mutants"])) for each in table["proof"])


@cache
def _reasons() -> Mapping[str, str]:
    return {name: proof.reason for proof in proofs() for name in proof.mutants}


def proof_of(mutant: Mutant) -> str:
    """The proof that a mutant computes the same; empty where there is none."""
    return _reasons().get(mutant.name, "")


# What the emulator has nothing to do for: the order of two launches that overlap, and prefetch.
_OF_THE_LAUNCH = ("make_begin", "make_loaded", "make_look_ahead")
_CALLS = ("begin(", "look_ahead(", "loaded()", "release_dependents()", "wait_for_predecessor()", "prefetch_l2(")
_SETS_PIECE = "room, piece = (int32(width - mine), "  # and what comes then is read by prefetch alone


def only_on_a_gpu(mutant: Mutant) -> bool:
    """Whether a mutant changes nothing but dependent launch or prefetch."""
    if not mutant.source.is_kernel:
        return False
    edit = mutant.edit
    if edit.before.startswith(_SETS_PIECE) and edit.after.startswith(_SETS_PIECE):
        return True
    return edit.function.split(".")[0] in _OF_THE_LAUNCH or edit.before.startswith(_CALLS) or edit.before == "if PDL:"

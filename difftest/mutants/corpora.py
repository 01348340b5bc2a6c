"""The corpora by name: wrong kernels from the field, wrong ones made by machine, honest ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType

from difftest.mutants.entry import Entry


@dataclass(frozen=True, slots=True)
class Corpus:
    """Where its entries are: a module with `entries()`, imported when asked for.

    `honest`: an entry that is found wrong is a false alarm. `enough`: after so many cases that find an entry the others are not
    judged any more: the checks that find it have spoken. `runs_itself`: the module has a `run_entry(entry, found)` of its own,
    whose cases are not those of one provider, and no other project's comparison is asked.
    """

    name: str
    what: str
    module: str
    honest: bool = False
    enough: int = 5
    runs_itself: bool = False

    def entries(self) -> Sequence[Entry]:
        """The entries, in their order. Every process has them alike."""
        return _entries(self.module)


@cache
def _entries(module: str) -> tuple[Entry, ...]:
    return tuple(import_module(module).entries())


CORPORA: Mapping[str, Corpus] = MappingProxyType(
    {
        corpus.name: corpus
        for corpus in (
            Corpus("field", "wrong in one way each, as real kernels were", "difftest.mutants.field"),
            Corpus(
                "machine",
                "one small change each, made by machine",
                "difftest.mutants.machine",
                enough=1,
                runs_itself=True,
            ),
            Corpus("honest", "honest ways to compute the same", "difftest.mutants.honest", honest=True),
        )
    }
)

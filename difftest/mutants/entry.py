"""An entry of a corpus: one implementation that is wrong in one way, or an honest one. Imports no corpus and runs nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType

from difftest.providers.file import FileCandidate
from reference.providers import Provider


@dataclass(frozen=True, slots=True)
class Entry:
    """One implementation and what is said of it.

    `name`: unique in its corpus. `ops`: the operators that it is tested as. `kind`: what sort of fault, a row of the kill
    matrix. `what`: one sentence, what is wrong; of an honest entry, what it computes. `source`: where it was seen (an issue
    or a case's id), or "kind of ID" for one made after it. `provider`: makes the implementation; called in the process that
    runs it. `contract`: the code that it follows but for its fault ("": the operator's first).
    `beyond`: the options of `difftest`, beside its defaults, without which the fault does not show; empty: the default run
    finds it. `one_in`: it shows in one call of so many, at random. `equivalent`: the proof that it computes the same as the
    original; such an entry is not run. `device`: what it can fail on; not run where that is missing.
    """

    name: str
    ops: tuple[str, ...]
    kind: str
    what: str
    source: str
    provider: Callable[[], Provider]
    contract: str = ""
    beyond: Mapping[str, str] = field(default_factory=dict)
    one_in: int = 1
    equivalent: str = ""
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Said:
    """What a decorator says of a function of a corpus; the rest is the function's name, its docstring and its module."""

    op: str
    source: str
    contract: str
    one_in: int
    beyond: Mapping[str, str]


def mutant(op: str, source: str = "", contract: str = "", one_in: int = 1, **beyond: str) -> Callable[[Callable], Callable]:
    """Makes a function with the operator's FlashInfer signature an entry; its docstring is the sentence. `beyond` names options
    of `difftest` without their dashes: `rows="65537"`."""

    options = {f"--{name.replace('_', '-')}": value for name, value in beyond.items()}

    def mark(function: Callable) -> Callable:
        function.said = Said(op, source, contract, one_in, options)  # type: ignore[attr-defined]
        return function

    return mark


honest = mutant  # an honest one is described in the same words


def entries_of(module: ModuleType) -> Iterator[Entry]:
    """The entries of a module of marked functions, in their order; the module's name is their kind."""
    kind = module.__name__.rpartition(".")[2]
    for name, function in vars(module).items():
        said = getattr(function, "said", None)
        if isinstance(said, Said) and function.__module__ == module.__name__:
            sentence = " ".join((inspect.getdoc(function) or "").split())
            provider = _Made(name, function)
            yield Entry(name, (said.op,), kind, sentence, said.source, provider, said.contract, said.beyond, said.one_in)


@dataclass(frozen=True, slots=True)
class _Made:
    """Makes a provider of a function, as `--candidate FILE.py:FUNCTION` does."""

    name: str
    function: Callable

    def __call__(self) -> Provider:
        return FileCandidate(self.name, self.function)

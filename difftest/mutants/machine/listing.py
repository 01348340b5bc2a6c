"""The mutants, in a fixed order under names that stay: what is changed, where, and which of all changes are taken."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from difftest.mutants.machine.edits import Edit, applied, edits

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Source:
    """A file whose code is mutated. `most`: how many of its mutants are taken, so that a run ends in time; `leave`: the
    outermost functions ("" is the file's own level) that no kernel and no formula is made of.
    """

    file: str
    most: int
    leave: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None

    @property
    def module(self) -> str:
        """Its dotted name."""
        return self.file.removesuffix(".py").replace("/", ".")

    @property
    def stem(self) -> str:
        """Its last word."""
        return Path(self.file).stem

    @property
    def is_kernel(self) -> bool:
        """Whether it is code of kernels; else it is a plain reference in torch."""
        return self.file.startswith("numba_kernels")

    def text(self) -> str:
        """Its text."""
        return (ROOT / self.file).read_text(encoding="utf-8")

    def wanted(self, function: str) -> bool:
        """Whether an outermost function of it is mutated."""
        return function not in self.leave and (self.only is None or function in self.only)


KERNELS = "numba_kernels/kernels"
SOURCES = (
    Source(f"{KERNELS}/textbook.py", 220, ("",)),
    Source(
        f"{KERNELS}/activations.py",
        130,
        ("Activation", "_rest", "activation_of", "make_activation", "make_rounding", "_make_unchanged"),
    ),
    Source(f"{KERNELS}/rounding.py", 50, ("",)),
    Source(f"{KERNELS}/gated.py", 100, ("", "make_gated_kernel")),
    Source(f"{KERNELS}/reduction.py", 200),  # tree.py is left: it chooses a summation tree, and any tree is right
    Source(f"{KERNELS}/row.py", 140, ("",)),
    Source(f"{KERNELS}/norms.py", 120, ("", "make_norm_kernel")),
    Source(f"{KERNELS}/streamed.py", 90, ("",)),
    Source("reference/operators/norms.py", 50, only=("add_rmsnorm", "rmsnorm")),
    Source("reference/operators/gated.py", 70, only=("silu", "gelu", "gelu_tanh", "swish", "swigluoai", "act_and_mul")),
    Source("reference/arithmetic.py", 70, only=("Fp32", "EveryOperation")),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small change of a file. `name`: the file, the function, the kind and a digest of the change itself, so that it stays
    while other lines of the file change."""

    name: str
    source: Source
    edit: Edit

    @property
    def what(self) -> str:
        """Where it is, and the line before and after."""
        return f"{self.source.file}:{self.edit.line}: {self.edit.before}  ->  {self.edit.after}"

    def text(self) -> str:
        """The file's text with the change made."""
        return applied(self.source.text(), self.edit)


@lru_cache(maxsize=1)
def mutants() -> tuple[Mutant, ...]:
    """Those that are taken, file by file, in the order of their lines."""
    return tuple(mutant for source in SOURCES for mutant in taken(source))


def by_name(name: str) -> Mutant:
    """The mutant of that name. KeyError where there is none."""
    for mutant in mutants():
        if mutant.name == name:
            return mutant
    raise KeyError(name)


def taken(source: Source) -> list[Mutant]:
    """A file's mutants that are taken: of all, as many as it may have. Those of shuffles and of the order of statements first,
    which are few, and every barrier's; the others are drawn by their names."""
    everything = list(_named(source, edits(source.text(), source.wanted)))
    chosen = sorted(everything, key=lambda mutant: (not _is_rare(mutant.edit), _digest(mutant.name)))[: source.most]
    names = {mutant.name for mutant in chosen}
    return [mutant for mutant in everything if mutant.name in names]


def _is_rare(edit: Edit) -> bool:
    return edit.kind in ("shuffle", "mask", "order") or edit.before.startswith("cuda.sync")


def _named(source: Source, found: list[Edit]) -> Iterator[Mutant]:
    seen: Counter[str] = Counter()
    for edit in found:
        function = edit.function.rpartition(".")[2] or "module"
        change = _digest(edit.function + edit.before + edit.after)[:6]
        name = f"{'' if source.is_kernel else 'torch.'}{source.stem}.{function}.{edit.kind}-{change}"
        seen[name] += 1
        yield Mutant(name if seen[name] == 1 else f"{name}-{seen[name]}", source, edit)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

"""The journal of a run of `mutants`: what each kernel's cases showed at a seed, a line as it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from difftest.mutants.found import Found, Task
from difftest.run.journal import from_plain, to_plain
from difftest.run.lines import Lines

ROOT = Path(__file__).parents[2]
PACKAGES = ("difftest", "reference", "numba_kernels")


class Journal(Lines):
    """An open journal of `mutants`. `done`: corpus, name and seed of what it holds already -> what was found."""

    SCHEMA, WHAT = "numba-kernels/mutants-journal/1", "kernel"

    def __init__(self, path: Path, about: Mapping[str, Any], *, resume: bool = False, named: bool = True) -> None:
        self.done: dict[Task, Found] = {}
        super().__init__(path, about, resume=resume, named=named)

    def take(self, line: dict[str, Any]) -> None:
        """A kernel's line."""
        found, seed = from_plain(Found, line["found"]), from_plain(int, line["seed"])
        self.done[found.corpus, found.name, seed] = found

    def keep(self, seed: int, found: Found) -> None:
        """Appends what a kernel's cases showed at a seed."""
        self.append({"seed": seed, "found": to_plain(found)})


def about(seeds: Sequence[int], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same for a run to be gone on with, whichever kernels it is of."""
    return {"seeds": list(seeds), "defaults": dict(defaults), "sha256 of the code": _of_the_code()}


@cache
def _of_the_code() -> str:
    """Of every file of the packages that a result comes from, tables of data with them."""
    digest = hashlib.sha256()
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in (".py", ".toml"))
    for path in sorted(files):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()

"""What a compilation leaves, and what it depends on of ours."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SOURCES = ("backend/*.py", "kernels/*.py", "formats.py")  # what compiled code depends on: patterns in the package's folder


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code: the cubin for one architecture, and its entry's name."""

    cubin: bytes
    entry: str


@cache
def sources() -> str:
    """The digest of our sources."""
    digest = hashlib.sha256()
    for source in sorted(path for pattern in SOURCES for path in PACKAGE.glob(pattern)):
        digest.update(source.read_bytes())
    return digest.hexdigest()

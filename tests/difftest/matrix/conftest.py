"""How these tests name their candidates."""

from __future__ import annotations

from pathlib import Path

from ..in_process import one_thread, run

__all__ = ["one_thread", "run"]
CANDIDATES = Path(__file__).parent / "candidates.py"


def spelled(function: str) -> str:
    """A candidate as the command line spells it."""
    return f"{CANDIDATES}:{function}"

"""What the tester asks of the system's files: each a function, so that a test can make the k-th call of one fail."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO


def create(folder: Path) -> IO[str]:
    """A new file in a folder, open for text, with a name of its own. What UTF-8 can't hold, half a surrogate pair of a path, is
    written as its escape."""
    return tempfile.NamedTemporaryFile(
        "w", dir=folder, prefix=".difftest-", delete=False, encoding="utf-8", errors="backslashreplace"
    )


def write(file: IO[str], text: str) -> None:
    """Hands all of a text to the system."""
    file.write(text)
    file.flush()


def sync(file: IO[str]) -> None:
    """Returns when the file's content is on the disk."""
    os.fsync(file.fileno())


def rename(old: Path, new: Path) -> None:
    """Puts a file in the place of another, at once."""
    old.replace(new)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, where they are not there."""
    folder.mkdir(parents=True, exist_ok=True)


def read(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


def state(path: Path) -> os.stat_result:
    """What is there, symbolic links followed."""
    return path.stat()

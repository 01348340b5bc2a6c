"""A journal's file: what was found, a line as it is found, to be gone on from by a run after one that was killed in any way.

JSON Lines: the first says what the run is about. A line that is not whole is the last, of a writer that was killed, and counts
for nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from difftest import json_text
from difftest.errors import LackingError, UsageError

FOLDER = Path("out/journals")


class Lines(ABC):
    """An open file of such lines. `failure`: why it could not be written any more. `named`: somebody asked for it."""

    SCHEMA: ClassVar[str]
    WHAT: ClassVar[str]  # a line is of, in a word

    def __init__(self, path: Path, about: Mapping[str, Any], *, resume: bool = False, named: bool = True) -> None:
        """A new file, or, to `resume`, one that is there and about the same. UsageError for one that is not, LackingError for
        one that can't be written."""
        self.path, self.named = path, named
        self.failure: OSError | None = None
        whole = self._read(about) if resume else 0
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            os.ftruncate(self._file, whole)
        except OSError as error:
            raise LackingError(f"{path} could not be written: {error.strerror}") from None
        if not whole:
            self.append({"schema": self.SCHEMA, **about})

    @classmethod
    def unnamed(cls, about: Mapping[str, Any]) -> Self | None:
        """One that nobody asked for, for a run that is killed; None where none can be written."""
        try:
            FOLDER.mkdir(parents=True, exist_ok=True)
            file, name = tempfile.mkstemp(".jsonl", time.strftime("%Y%m%d-%H%M%S-"), FOLDER)
            os.close(file)
            return cls(FOLDER / Path(name).name, about, named=False)
        except (OSError, LackingError):
            return None

    @abstractmethod
    def take(self, line: dict[str, Any]) -> None:
        """Takes over what an earlier run wrote in a line. KeyError, TypeError, ValueError or AttributeError for no such line."""

    def append(self, line: Mapping[str, Any]) -> None:
        """Adds a line, all of it or nothing. Where that fails the run goes on without; `failure` says why."""
        if self.failure:
            return
        text = (json.dumps(line, ensure_ascii=True) + "\n").encode()
        start = os.lseek(self._file, 0, os.SEEK_END)
        try:
            written = os.write(self._file, text)
            if written < len(text):  # the disk is full: the next would say so
                os.write(self._file, text[written:])
        except OSError as error:
            self.failure = error
            os.ftruncate(self._file, start)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _read(self, about: Mapping[str, Any]) -> int:
        """Reads what is whole; how many bytes that is."""
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise UsageError(f"--resume: {self.path}: {error.strerror}") from None
        whole = data.rfind(b"\n") + 1
        head, *lines = data[:whole].split(b"\n")[:-1] or [b""]
        self._check(parsed(self.path, 1, head) if head or lines else {"schema": self.SCHEMA, **about}, about)
        for number, line in enumerate(lines, 2):
            entry = parsed(self.path, number, line)
            try:
                self.take(entry)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise UsageError(f"--resume: {self.path}: line {number} is no {self.WHAT} of a journal: {error}") from None
        return whole

    def _check(self, head: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        if head.get("schema") != self.SCHEMA:
            raise UsageError(f"--resume: {self.path} is no journal ({self.SCHEMA})")
        for name, value in about.items():
            if head.get(name) != value:
                raise UsageError(f"--resume: {self.path} is another run's: {name} was {head.get(name)!r}, and is {value!r}")


def parsed(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """What a journal's line says. UsageError for what is no line of one."""
    try:
        found = json_text.parse(line.decode())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"--resume: {path}: line {number} is no line of a journal")
    return found

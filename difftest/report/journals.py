"""The journal that a command keeps: which one it is, and what to say of it in the end."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from difftest.errors import LackingError, UsageError
from difftest.report import terminal
from difftest.report.files import check_writable
from difftest.run.lines import Lines

J = TypeVar("J", bound=Lines)


def opened(kind: type[J], about: Mapping[str, Any], path: Path | None, resume: Path | None) -> J | None:
    """The journal named by `--journal`, the one to go on from, or one that nobody asked for."""
    if path and resume:
        raise UsageError("--resume: the run goes on in its own journal; leave out --journal")
    if resume:
        return kind(resume, about, resume=True)
    if path:
        check_writable("--journal", path)
        return kind(path, about)
    return kind.unnamed(about)


def ended(screen: Console, journal: Lines, *, whole: bool) -> None:
    """How to go on with a run that is not whole; what became of a journal that could not be written. One that nobody asked for
    and that holds a whole run goes."""
    if journal.failure:
        raise LackingError(f"{journal.path} could not be written: {journal.failure.strerror}: it holds a part of this run")
    if not whole:
        again = [*sys.argv[1:]] if "--resume" in sys.argv else [*sys.argv[1:], "--resume", str(journal.path)]
        screen.print(f"to go on with this run: {terminal.command_line(*again)}", markup=False, soft_wrap=True)
    elif not journal.named:
        journal.path.unlink(missing_ok=True)

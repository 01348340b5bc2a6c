"""Ctrl-C while modules are imported, and SIGTERM while cases run. Imports nothing heavy."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from difftest.errors import INTERRUPTED


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block: an import that it cut in two could swallow it, or leave half a module."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if seen and callable(before):
            before(signal.SIGINT, None)


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Ctrl-C ends the process there and then: for a command's own imports, when there is nothing yet to keep."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.stderr.write("error: interrupted\n")
        sys.stderr.flush()
        os._exit(INTERRUPTED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def on_sigterm_too() -> Iterator[None]:
    """SIGTERM (a time limit's, a job scheduler's) ends the block as Ctrl-C does, so that what was found is kept."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def left_to_the_parent() -> None:
    """In a worker: whatever a terminal or a time limit sends to the whole group has no effect. SIGKILL has."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def ignored() -> Iterator[None]:
    """Ctrl-C has no effect in the block, nor ever on the processes that it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

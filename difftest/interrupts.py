"""Ctrl-C while modules are imported, and SIGTERM while cases run. Imports nothing heavy."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from difftest.errors import INTERRUPTED

Handler = Callable[[int, FrameType | None], object] | signal.Handlers


@contextmanager
def _handled(number: int, handler: Handler) -> Iterator[None]:
    """``handler`` takes the signal in the block. Elsewhere than in the main thread signals are not Python's to set: no effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


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

    with _handled(signal.SIGINT, leave):
        yield


@contextmanager
def on_sigterm_too() -> Iterator[None]:
    """SIGTERM (a time limit's, a job scheduler's) ends the block as Ctrl-C does, so that what was found is kept."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(signal.SIGTERM, interrupt):
        yield


def left_to_the_parent() -> None:
    """In a worker: whatever a terminal or a time limit sends to the whole group has no effect. SIGKILL has."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def ignored() -> Iterator[None]:
    """Ctrl-C has no effect in the block, nor ever on the processes that it starts."""
    with _handled(signal.SIGINT, signal.SIG_IGN):
        yield

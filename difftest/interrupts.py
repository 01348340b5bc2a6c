"""What comes from outside: Ctrl-C and SIGTERM, code that ends the process, and a reader that closes standard output."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TextIO

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
    """Ctrl-C and SIGTERM take effect at the end of the block: an import that one cut in two could swallow it, or leave half a
    module."""
    seen: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    try:
        with _handled(signal.SIGINT, remember), _handled(signal.SIGTERM, remember):
            yield
    finally:
        if seen:
            signal.raise_signal(seen[0])


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Ctrl-C or SIGTERM ends the process there and then: for a command's own imports, when there is nothing yet to keep."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.stderr.write("error: interrupted\n")
        sys.stderr.flush()
        os._exit(INTERRUPTED)

    with _handled(signal.SIGINT, leave), _handled(signal.SIGTERM, leave):
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


@contextmanager
def no_exit() -> Iterator[None]:
    """While it lasts, `os._exit` raises SystemExit in this process: a candidate must not end it, with a status of its choosing
    and no verdict. In a process that was forked meanwhile it is what it was."""
    leave, own = os._exit, os.getpid()

    def stay(status: int) -> NoReturn:
        if os.getpid() != own:
            leave(status)
        raise SystemExit(status)

    os._exit = stay
    try:
        yield
    finally:
        os._exit = leave


class _Lasting:
    """A text stream whose writes never fail: from the first that would have on, what is written goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes, if it can; the text's length in any case."""
        self._attempt(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flushes, if it can."""
        self._attempt(self._stream.flush)

    def _attempt(self, call: Callable, *words: str) -> None:
        try:
            call(*words)
        except OSError as error:
            self.failure = self.failure or error
            with suppress(OSError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextmanager
def lasting_output() -> Iterator[Callable[[], OSError | None]]:
    """Standard output and error outlive their readers in the block: a run whose pipe is closed ends as it would have, and saves
    what it found. Gives the function that tells why standard output failed, None where it did not."""
    streams = sys.stdout, sys.stderr
    for stream in streams:
        with suppress(AttributeError, ValueError):  # what the encoding (ASCII, Latin-1) does not have is spelt out
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with open(os.devnull, "w") as nowhere:  # for a stream that was closed from the start, which is None
        out, err = (_Lasting(stream or nowhere) for stream in streams)

        def failure() -> OSError | None:
            out.flush()
            return out.failure

        sys.stdout, sys.stderr = out, err  # type: ignore[assignment]
        try:
            yield failure
        finally:
            out.flush()
            err.flush()
            sys.stdout, sys.stderr = streams

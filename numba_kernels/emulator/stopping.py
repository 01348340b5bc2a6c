"""Ctrl-C while compiled code runs: it looks now and then (words.tick), and ends."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Iterator
from typing import Any

from .environment import Env

_nothing = ctypes.CFUNCTYPE(None)(lambda: None)  # while it runs, Python hands out the signals that have come
_ADDRESS = ctypes.cast(_nothing, ctypes.c_void_p).value or 0


@contextlib.contextmanager
def stoppable(env: Any) -> Iterator[None]:
    """While a launch runs, an interrupt sets its word STOPPED, if Python's own handler would else raise KeyboardInterrupt."""
    env[Env.LOOK] = _ADDRESS
    takes = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not takes:
        yield
        return

    def stop(*_: Any) -> None:
        env[Env.STOPPED] = 1

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if env[Env.STOPPED]:  # it came as the launch ended
        raise KeyboardInterrupt

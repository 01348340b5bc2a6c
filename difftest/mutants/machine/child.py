"""A function in a child process, forked from this one so that it starts at once. What it does to its modules is nobody else's.

Only for a process without threads and without CUDA: a worker of the pool, or the command's own where there are no workers. With
that process the child ends too, however it ended.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG = 1  # of Linux's prctl
_libc = ctypes.CDLL(None)


def last_answer(work: Callable[[Callable[[Any], None]], None]) -> tuple[Any, int]:
    """The last value that `work(say)` said in the child (None if it said none), and the child's exit code: negative for the
    signal that ended it.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        _end_with(parent)
        os.close(reading)
        _be_the_child(work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        last = None
        while True:
            try:
                last = pickle.load(answers)
            except EOFError:
                break
            except pickle.UnpicklingError:  # cut short by the child's end
                break
    _, status = os.waitpid(process, 0)
    return last, os.waitstatus_to_exitcode(status)


def _end_with(parent: int) -> None:
    """This process is killed when its parent ends, where the system can do that."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended meanwhile
            os._exit(1)


def _be_the_child(work: Callable[[Callable[[Any], None]], None], writing: int) -> None:
    code = 1
    try:
        with os.fdopen(writing, "wb") as answers:

            def say(value: Any) -> None:
                pickle.dump(value, answers)
                answers.flush()

            work(say)
            code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)

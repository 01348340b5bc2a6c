"""The errors that end a command, each with its exit status and one line for the reader."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable

CONFORMS, DIFFERS, BAD_USAGE, LACKING = 0, 1, 2, 3
NEEDED = ("numpy", "numba", "torch", "ml_dtypes", "mpmath", "click", "rich", "hypothesis")  # without which no command runs
_SCARCE = {getattr(errno, name, 0) for name in ("EAGAIN", "ENOMEM", "EMFILE", "ENFILE", "ENOSPC", "EDQUOT", "ENOBUFS")}
FAULT = 70  # of the tester itself: EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # stopped by Ctrl-C before a difference was found: the shell's own 128 + SIGINT
UNREAD = 141  # standard output was closed before its end, and no difference was found: 128 + SIGPIPE


class TesterError(Exception):
    """Ends the command with `status` and one line."""

    status = BAD_USAGE

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class UsageError(TesterError, ValueError):
    """The request makes no sense; nothing was run."""


class LackingError(TesterError):
    """The environment lacks what was asked for."""

    status = LACKING


def known(error: Exception) -> LackingError | None:
    """What to say in place of a library's error that says what the environment lacks; None for any other."""
    if is_scarce(error):
        return LackingError(f"the system gives no more: {error}")
    return not_installed(error) if isinstance(error, ModuleNotFoundError) else out_of_memory(error)


def is_scarce(error: BaseException) -> bool:
    """Whether the system refused one more process, file, buffer or block."""
    return isinstance(error, OSError) and error.errno in _SCARCE


def out_of_memory(error: Exception) -> LackingError | None:
    """What to say in place of a library's error (torch's or NumPy's, a worker's traceback in it) when memory is lacking."""
    text = str(error)
    if not (isinstance(error, MemoryError) or re.search("can't allocate memory|out of memory|calculation overflowed", text)):
        return None
    asked = re.search(r"to allocate ([\d.]+ \w+)", text)
    return LackingError(f"not enough memory{f' for {asked[1]} more' if asked else ''}: ask for fewer rows or smaller widths")


def not_installed(error: ModuleNotFoundError) -> LackingError | None:
    """What to say when a library that every command needs is not there; None for any other module."""
    name = (error.name or "").partition(".")[0]
    if name not in NEEDED:
        return None
    return LackingError(f"{name} is not installed: pip install {name}, or pip install -e . for all that is needed")


def one_of(option: str, value: object, allowed: Iterable[str], what: str = "") -> UsageError:
    """The error for a value outside a closed list: the option, what it was, what is allowed, and the nearest one."""
    names = list(allowed)
    near = difflib.get_close_matches(str(value), names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    kind = f" {what}" if what else ""
    return UsageError(f"{option}: {str(value)!r} is not a{kind or ' choice'}{hint}; allowed: {', '.join(names) or 'none'}")

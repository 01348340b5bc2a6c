"""The errors that end a command, each with its exit status and one line for the reader. Imports nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CONFORMS, DIFFERS, BAD_USAGE, LACKING = 0, 1, 2, 3
INTERRUPTED = 130  # stopped by Ctrl-C before a difference was found: the shell's own 128 + SIGINT


class TesterError(Exception):
    """Ends the command with `status` and one line."""

    status = BAD_USAGE

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class UsageError(TesterError):
    """The request makes no sense; nothing was run."""


class LackingError(TesterError):
    """The environment lacks what was asked for."""

    status = LACKING


def one_of(option: str, value: object, allowed: Iterable[str], what: str = "") -> UsageError:
    """The error for a value outside a closed list: the option, what it was, what is allowed, and the nearest one."""
    names = list(allowed)
    near = difflib.get_close_matches(str(value), names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    kind = f" {what}" if what else ""
    return UsageError(f"{option}: {str(value)!r} is not a{kind or ' choice'}{hint}; allowed: {', '.join(names) or 'none'}")

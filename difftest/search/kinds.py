"""Which kind of failure a reason is: what shrinking keeps to, so that one fault is not taken for another on the way down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# The first that matches; what is left is a judgement of the output's values. A failure of several kinds is shrunk for the first.
KINDS: Sequence[tuple[str, str]] = (
    ("raised", r"^raised |^the process died"),
    ("stability", r"^changes from run to run|^in a second call|^the result of one call"),
    ("batch", r"^depends on the batch|^rows? [\d to]+ alone"),
    ("memory", r"overwritten|was freed|was rebound|after the call|shares memory|overwrote nothing"),
    ("returned", r"^returned |^output (has|is on)|^was given out|^out "),
    ("residual", r"^residual:"),
    ("values", r""),
)
NAMES = tuple(name for name, _ in KINDS)
STABILITY = ("stability", "batch")  # seen by further calls alone


def kind(reason: str) -> str:
    """The kind of one reason."""
    return next(name for name, pattern in KINDS if re.search(pattern, reason))


def first(reasons: Iterable[str]) -> str:
    """The kind of a failure with these reasons."""
    return min((kind(reason) for reason in reasons), key=NAMES.index)

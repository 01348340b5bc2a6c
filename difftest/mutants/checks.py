"""Which check of the tester a reason comes from, told by its words."""

from __future__ import annotations

import re
from collections.abc import Iterable

# In the order of the kill matrix's columns; the first that a sentence fits is its check. "in a second call" and "row 0 alone"
# lead a sentence of any kind, of calls again and in parts.
CHECKS: tuple[tuple[str, str, str], ...] = (
    (
        "emulator",
        r"raised (OutOfBounds|DataRace|Divergent\w+|MaskError|NeverTrue|UninitializedRead|KernelException): ",
        "the emulator: an access out of bounds, a race, lanes or threads that do not meet, memory that nobody wrote",
    ),
    ("no end", r"^does not end", "a call that does not end"),
    ("stability", r"^changes from run to run|overwritten by the next|^in a second call: ", "other bits in a second call"),
    ("batch", r"^depends on the batch|^rows? \d+( to \d+)? alone: ", "a call on a part of the rows"),
    ("raised", r"^raised |process died", "an exception, or the end of the process"),
    (
        "memory",
        r"overwritten, the first|was freed|was rebound|after the call, not|shares memory|overwrote nothing|"
        r"belongs in the memory|was given out and returned",
        "a write outside the rows or into an input, or memory that is not the output's",
    ),
    ("form", r"^returned |^output (has|is on) ", "not a tensor of the right shape, dtype and device"),
    ("residual", r"^residual: \d+ of \d+ are not the rounded sum", "the new residual is not bit-exact"),
    (
        "class",
        r"are of another class|finite elements of rows with an Inf",
        "NaN, +Inf, -Inf or finite where another is right; a number where an Inf in the row leaves zeros",
    ),
    ("sign", r"zeros have the wrong sign", "+0 for -0, or -0 for +0"),
    ("rstd", r"rstd is off; row|no single rstd explains", "no rstd, or none near enough, explains a row"),
    ("attainable value", r"no fp32 evaluation of", "a value that fp32 can't give"),
    ("bias", r"leans to one side", "the rows' rstd errors lean to one side"),
    ("rate", r"are not the correctly rounded value; fp32 explains", "more off-by-one elements than fp32 explains"),
)
NAMES = tuple(name for name, _, _ in CHECKS)
UNKNOWN = "unnamed"


def check_of(reason: str) -> str:
    """The name of the check that says this; UNKNOWN for a sentence that no pattern fits."""
    return next((name for name, pattern, _ in CHECKS if re.search(pattern, reason)), UNKNOWN)


def checks_of(reasons: Iterable[str]) -> tuple[str, ...]:
    """The checks that speak in a case, each once, in the matrix's order."""
    found = {check_of(reason) for reason in reasons}
    return tuple(name for name in (*NAMES, UNKNOWN) if name in found)

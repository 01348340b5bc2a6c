"""Words for the tester's lines."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def in_a_line(error: BaseException) -> str:
    """An error's type and text in one line. Of somebody else's error even the text may raise, or hold what no encoding can."""
    try:
        said = " ".join(str(error).split()).encode("utf-8", "backslashreplace").decode()
    except Exception as other:
        said = f"its text raises {type(other).__name__}"
    return f"{type(error).__name__}: {said}"

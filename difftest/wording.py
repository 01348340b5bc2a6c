"""Words for the tester's lines."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 case``, ``1,167 cases``."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def compact(number: int) -> str:
    """A number in at most seven characters of a table: ``1,267``, ``950M``, ``4.29G``."""
    for size, letter in ((10**9, "G"), (10**6, "M")):
        if number >= size:
            scaled = number / size
            return f"{scaled:,.0f}{letter}" if scaled >= 99.95 else f"{scaled:.3g}{letter}"
    return f"{number:,}"


def share(value: float | None) -> str:
    """A share of elements: per cent, or parts per million where it is small, on either side."""
    if value is None:
        return "-"
    if value == 0.0 or value == 1.0:
        return f"{value:.0%}"
    if value < 1e-3:
        return f"{1e6 * value:.3g} ppm"
    return f"{value:.4%}" if value > 0.999 else f"{value:.2%}"


def in_a_line(error: BaseException) -> str:
    """An error's type and text in one line. Of somebody else's error even the text may raise, or hold what no encoding can."""
    try:
        said = " ".join(str(error).split()).encode("utf-8", "backslashreplace").decode()
    except Exception as other:
        said = f"its text raises {type(other).__name__}"
    return f"{type(error).__name__}: {said}"

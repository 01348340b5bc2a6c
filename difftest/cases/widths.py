"""Classes of widths, each there for one kind of fault, and the widths that stand for a class in a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

WIDEST_DRAWN = 5503  # of the class above 4096, with room for every remainder; wider rows cost time and show no more
WIDEST_COMPILED = 4096  # where a kernel is compiled for a form: one more, 1.8 s for each norm and dtype, above it


@dataclass(frozen=True, slots=True)
class WidthClass:
    """A class by name: which widths belong to it."""

    name: str
    holds: Callable[[int], bool]


def is_power(number: int) -> bool:
    """Whether a number is a power of two from 2 up."""
    return number > 1 and number & (number - 1) == 0


# From plain to odd. 3 is 2^2 - 1 and no 2^1 + 1, so that the two have nothing in common.
CLASSES = (
    WidthClass("2^k", lambda w: w > 2 and is_power(w)),
    WidthClass("multiple of 8, not of 16", lambda w: w % 16 == 8),
    WidthClass("multiple of 1024", lambda w: w % 1024 == 0),
    WidthClass("odd", lambda w: w > 4 and w % 2 == 1 and not is_power(w - 1) and not is_power(w + 1)),
    WidthClass("2^k - 1", lambda w: w > 2 and is_power(w + 1)),
    WidthClass("2^k + 1", lambda w: w > 4 and is_power(w - 1)),
    WidthClass("below a warp", lambda w: 1 < w < 32),
    WidthClass("beyond one block", lambda w: 1024 < w <= 4096),
    WidthClass("above 4096", lambda w: w > 4096),
    WidthClass("1", lambda w: w == 1),
)


@cache
def members(name: str, most: int, itemsize: int, few_forms: bool) -> tuple[int, ...]:
    """The widths up to `most` that stand for a class, in their order; empty where there are none."""
    holds = next(each.holds for each in CLASSES if each.name == name)
    return tuple(w for w in range(1, min(most, WIDEST_DRAWN) + 1) if holds(w) and not (few_forms and _own_form(w, itemsize)))


def nearest_shared(width: int, itemsize: int) -> int:
    """The widest row up to `width` that has a form which others share."""
    return next(narrower for narrower in range(width, 0, -1) if not _own_form(narrower, itemsize))


def _own_form(width: int, itemsize: int) -> bool:
    """Whether the emulator compiles a kernel of its own for such a width: a second for a norm.

    Few are shared by widths of every class, by the vector of a row and the warps that it has (numba_kernels.tuning): odd rows of
    a warp, odd rows above 4096, rows of whole 16-byte vectors of a warp, and of the warps that a row of 2048 has.
    """
    warp_tile = 128 * 16 // itemsize
    vectors = width % (16 // itemsize) == 0 and (width <= warp_tile or 2048 - warp_tile < width <= 2048)
    scalar = width % 2 == 1 and (width < 128 or width > 4096)
    return not (scalar or vectors)

"""Source locations by number, for the whole process: a running kernel keeps the number of the line it is at in one word.

Numbers are never reused, so compiled code may hold them.
"""

from __future__ import annotations

import threading
from typing import NamedTuple


class Location(NamedTuple):
    """A line of a function: the function's name, its file's path, the line (from 1)."""

    function: str
    file: str
    line: int


_lock = threading.Lock()
_locations: list[Location] = [Location("?", "?", 0)]
_numbers: dict[Location, int] = {}


def number_of(location: Location) -> int:
    """The number of a location; the same location always has the same number."""
    with _lock:
        if location not in _numbers:
            _numbers[location] = len(_locations)
            _locations.append(location)
        return _numbers[location]


def location_of(number: int) -> Location:
    """The inverse of :func:`number_of`; an unknown number gives the location ``?``, line 0."""
    return _locations[number] if 0 <= number < len(_locations) else _locations[0]

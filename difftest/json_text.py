"""JSON from outside: read strictly, or refused in a line that says why. What the project writes is read by nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from difftest import system


def read(path: Path) -> str:
    """The text of a file. ValueError says why it can't be read: there is none, a folder, bytes that are no UTF-8."""
    try:
        return system.read(path)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is no UTF-8") from None
    except ValueError as error:  # of the path: a NUL, half a surrogate pair
        raise ValueError(f"no path of a file: {error}") from None


def parse(text: str) -> Any:
    """The document in a text. ValueError for what is no JSON, for a key that stands twice in an object, for a number that is not
    finite in float64, for a whole number of thousands of digits, and for nesting beyond Python's stack.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _finite(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(f"{word[:40]} is not finite")
    return value

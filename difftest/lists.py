"""A list as one text, as the command line has it: names apart by commas. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path


def split(text: str) -> list[str]:
    """The names in a list, as they stand. A comma in the path of a function's file that is there parts nothing."""
    parts = text.split(",")
    if ".py:" not in text:
        return parts
    found = []
    while parts:
        count = next((n for n in range(len(parts), 1, -1) if is_function_in_a_file(",".join(parts[:n]))), 1)
        found.append(",".join(parts[:count]))
        parts = parts[count:]
    return found


def is_function_in_a_file(word: str) -> bool:
    """Whether a word is FILE.py:FUNCTION of a file that is there."""
    file, _, name = word.strip().rpartition(":")
    try:
        return name.isidentifier() and file.endswith(".py") and Path(file).is_file()
    except (OSError, ValueError):  # no path of a file
        return False

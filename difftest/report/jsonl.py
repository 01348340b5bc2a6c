"""Result files as JSON Lines: the first line says once what holds for all, then comes one measurement a line.

A committed result is grepped, compared line by line and read in review; one JSON document of it is one change after every run.
Both spellings hold the same document, and `read` takes both. The file's name decides which is written: JSON Lines where it ends
in `.jsonl`, one JSON document where it ends in anything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from difftest import json_text
from difftest.errors import UsageError
from difftest.report import files

SUFFIX = ".jsonl"


def write(path: Path, document: Mapping[str, Any], parts: Sequence[str]) -> None:
    """Writes the document in one step; the lists named in `parts` are what JSON Lines have a line an entry of."""
    if path.suffix == SUFFIX:
        files.write_text(path, dumps(document, parts))
    else:
        files.write_json(path, document)


def dumps(document: Mapping[str, Any], parts: Sequence[str]) -> str:
    """`{"schema": …, "parts": [NAME, …]}`, then `{"part": NAME, …}` for each entry of the document's list of that name."""
    head = {key: value for key, value in document.items() if key not in parts}
    entries = [{"part": part, **entry} for part in parts for entry in document[part]]
    lines = [{**head, "parts": list(parts)}, *entries]
    return "".join(json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n" for line in lines)


def loads(text: str) -> Any:
    """The document of either spelling. ValueError says what is wrong with the text."""
    first, _, rest = text.partition("\n")
    try:
        head = json_text.parse(first)
    except ValueError:
        return json_text.parse(text)  # a document over several lines
    if not isinstance(head, dict) or "parts" not in head:
        return json_text.parse(text)
    names = head.pop("parts")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its parts are no list of names")
    parts: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number, line in enumerate(rest.splitlines(), 2):
        try:
            entry = json_text.parse(line)
            parts[entry.pop("part")].append(entry)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"line {number} is no entry of {', '.join(map(repr, parts))}") from None
    return {**head, **parts}


def read(option: str, path: Path, schema: str, what: str, older: Sequence[str] = ()) -> dict[str, Any]:
    """The document in a file, of `schema` or of one of `older`. UsageError, one line that begins with `option`, for another."""
    try:
        text = json_text.read(path)
    except ValueError as error:
        raise UsageError(f"{option}: {path}: {error}") from None
    try:
        document = loads(text)
    except ValueError as error:
        raise UsageError(f"{option}: {path} is neither JSON nor JSON Lines: {error}") from None
    found = document.get("schema") if isinstance(document, dict) else None
    if found not in (schema, *older):
        its = f"; it is {found}" if isinstance(found, str) else ""
        raise UsageError(f"{option}: {path} is not {what} ({schema}){its}")
    return document

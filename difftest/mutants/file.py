"""The result file of `mutants`: what every entry's cases showed, and how to read one."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from difftest.mutants.found import Found
from difftest.mutants.run import Asked, Outcome, entry_of
from difftest.report import jsonl

SCHEMA = "numba-kernels/mutants/1"
PARTS = ("entries",)
_FOUND = tuple(field.name for field in fields(Found))
_COUNTED = ("caught", "caught_beyond")


def document(asked: Asked, outcome: Outcome, environment: Mapping[str, str], request: Mapping[str, str]) -> dict[str, Any]:
    """Plain data: the run and the options that asked for it, then for each entry what is said of it and what was found."""
    return {
        "schema": SCHEMA,
        "date": datetime.date.today().isoformat(),
        "environment": dict(environment),
        "request": dict(request),
        "workers": asked.workers,
        "seeds": list(asked.seeds),
        "defaults": dict(asked.defaults),
        "seconds": round(outcome.seconds, 1),
        "interrupted": outcome.interrupted,
        "left": outcome.left,
        "entries": [_record(found) for found in outcome.found],
    }


def _record(found: Found) -> dict[str, Any]:
    entry = entry_of(found.corpus, found.name)
    said = {
        "ops": list(entry.ops),
        "kind": entry.kind,
        "what": entry.what,
        "source": entry.source,
        "contract": entry.contract,
        "beyond": dict(entry.beyond),
        "one_in": entry.one_in,
        "equivalent": entry.equivalent,
    }
    seen = {name: getattr(found, name) for name in _FOUND}
    counted = {name: dict(seen[name]) for name in _COUNTED}
    return {**seen, **counted, **said, "killed": found.killed, "seconds": round(found.seconds, 2)}


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Writes the document: JSON Lines, an entry a line, where the file's name ends in .jsonl, else JSON."""
    jsonl.write(path, result, PARTS)


def read(option: str, path: Path) -> dict[str, Any]:
    """The document in a file. UsageError, one line that begins with `option`, for another."""
    return jsonl.read(option, path, SCHEMA, "a result of `mutants`")

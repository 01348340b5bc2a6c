"""A matrix's document in a file: as it is in JSON, and in JSON Lines with a line for each implementation and for each pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from difftest.matrix.analyse import BEFORE, SCHEMA
from difftest.report import jsonl

_GROUP = ("op", "dtype")
_PARTS = ("groups", "members", "pairs")


def write(path: Path, document: dict[str, Any]) -> None:
    """Writes it in one step, in the spelling that the file's name asks for."""
    jsonl.write(path, _flat(document) if path.suffix == jsonl.SUFFIX else document, _PARTS)


def read(option: str, path: Path) -> dict[str, Any]:
    """A matrix's document. UsageError for a file that holds none."""
    document = jsonl.read(option, path, SCHEMA, "the result of a matrix", older=[BEFORE])
    return _nested(document) if "pairs" in document else document


def _flat(document: dict[str, Any]) -> dict[str, Any]:
    """Implementations and pairs of every group as lists beside the groups, each entry with its operator and dtype."""
    found: dict[str, Any] = {**document, "groups": [], "members": [], "pairs": []}
    for group in document["groups"]:
        which = {key: group[key] for key in _GROUP}
        found["groups"].append({key: value for key, value in group.items() if key not in ("providers", "pairs")})
        found["members"] += [{**which, "name": name, **member} for name, member in group["providers"].items()]
        found["pairs"] += [{**which, **pair} for pair in group["pairs"]]
    return found


def _nested(document: dict[str, Any]) -> dict[str, Any]:
    """The document that `_flat` was given."""
    found = {key: value for key, value in document.items() if key not in ("members", "pairs")}
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for group in document["groups"]:
        groups[_which(group)] = {**group, "providers": {}, "pairs": []}
    for member in document["members"]:
        groups[_which(member)]["providers"][member.pop("name")] = member
    for pair in document["pairs"]:
        groups[_which(pair)]["pairs"].append(pair)
    for group in groups.values():
        for each in (*group["providers"].values(), *group["pairs"]):
            for key in _GROUP:
                del each[key]
    return {**found, "groups": list(groups.values())}


def _which(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(entry[key] for key in _GROUP)

"""The journal of a run: what each case showed, a line as it ends. The first line says what is compared with what."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from difftest.cases.case import Case
from difftest.errors import UsageError
from difftest.providers.resolve import is_file
from difftest.run.check import Result, Skip
from difftest.run.lines import Lines, parsed
from difftest.verdict import pooled

Found = list[Result | Skip]


class Journal(Lines):
    """The journal of a run of `difftest`. `done`: the cases that it holds already, by `key`, with what was found."""

    SCHEMA, WHAT = "numba-kernels/difftest-journal/1", "case"

    def __init__(self, path: Path, about: Mapping[str, Any], *, resume: bool = False, named: bool = True) -> None:
        self.done: dict[str, list[dict[str, Any]]] = {}
        super().__init__(path, about, resume=resume, named=named)

    def take(self, line: dict[str, Any]) -> None:
        """A case and what was found in it."""
        self.done[_key(line["case"], bool(line["again"]))] = list(line["found"])

    def keep(self, case: Case, again: bool, found: Found) -> None:
        """Appends what a case showed."""
        entries = [{_KINDS[type(each)]: to_plain(each, leaving_out="case")} for each in found]
        self.append({"case": case.to_json(), "again": again, "found": entries})

    def found(self, case: Case, again: bool) -> Found | None:
        """What an earlier run found in the case; None where it did not come to it."""
        entries = self.done.get(key(case, again))
        if entries is None:
            return None
        try:
            found = [from_plain(_TYPES[kind], {**fields, "case": case}) for each in entries for kind, fields in each.items()]
            for each in found:
                _check_statistics(getattr(each, "statistics", {}))
            return found
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"--resume: {self.path}: {case} is no case of a journal: {error}") from None


def _check_statistics(statistics: Mapping[str, Any]) -> None:
    """TypeError, ValueError or AttributeError where they are none of a verdict's: numbers, but for what `pooled` keeps."""
    for name, value in statistics.items():
        if name == pooled.STATISTIC:
            from_plain(dict[str, pooled.Sum], value)
        elif not isinstance(value, int | float):
            raise TypeError(f"{name} is no number, {value!r}")


def saved_in(path: Path) -> list[Case]:
    """The cases that the run of a journal began with because they had failed before: others may have been saved since."""
    try:
        with path.open("rb") as file:
            head = file.readline()
    except OSError as error:
        raise UsageError(f"--resume: {path}: {error.strerror}") from None
    if not head.endswith(b"\n"):
        return []
    try:
        return [Case.from_json(record) for record in parsed(path, 1, head).get("saved", [])]
    except (ValueError, TypeError) as error:
        raise UsageError(f"--resume: {path}: line 1 is no line of a journal: {error}") from None


def about(candidate: str, against: Sequence[str], batch_invariant: bool, cases: Sequence[Case]) -> dict[str, Any]:
    """What must be the same for a run to be gone on with: who is compared, a file's content with it; which cases were saved."""
    found: dict[str, Any] = {"candidate": candidate, "against": list(against), "batch_invariant": batch_invariant}
    found["saved"] = [case.to_json() for case in cases if case.origin == "saved"]
    files = [Path(name.rpartition(":")[0]) for name in (candidate, *against) if is_file(name)]
    return found | {f"sha256 of {file}": hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def key(case: Case, again: bool) -> str:
    """What a case is found by: all of it, and whether it is called again."""
    return _key(case.to_json(), again)


def to_plain(value: Any, leaving_out: str = "") -> Any:
    """Plain data of a dataclass and all that is in it; `from_plain` reads it back, each float with its bits."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value) if each.name != leaving_out]
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {name: to_plain(each) for name, each in value.items()}
    if isinstance(value, range):
        return [value.start, value.stop]
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def from_plain(kind: Any, value: Any) -> Any:
    """The value of a type that plain data stands for. TypeError or ValueError for what stands for none."""
    if isinstance(value, dict) and value.keys() == {"float"} and kind in (float, Any):
        return float(from_plain(str, value["float"]))
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, kind):
            return value
        hints = _hints(kind)
        return kind(**{name: from_plain(hints[name], each) for name, each in value.items()})
    if origin in (typing.Union, types.UnionType):
        others = [each for each in inner if each is not type(None)]
        return value if value is None or type(value) in others else from_plain(others[0], value)
    if origin is dict:
        return {name: from_plain(inner[1], each) for name, each in value.items()}
    if origin is Counter:
        return Counter({name: from_plain(int, each) for name, each in value.items()})
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return tuple(from_plain(each, item) for each, item in zip(kinds, value, strict=True))
    if origin is list:
        return [from_plain(inner[0], each) for each in value]
    if kind is range:
        found = range(*value)
        try:
            len(found)
        except OverflowError:
            raise ValueError(f"{value!r} is too long a range") from None
        return found
    if kind in (int, str, bool, float) and type(value) is not kind and not (kind is float and type(value) is int):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


_KINDS: dict[type, str] = {Result: "result", Skip: "skip"}
_TYPES = {name: kind for kind, name in _KINDS.items()}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _key(record: Mapping[str, Any], again: bool) -> str:
    return json.dumps([record, again], sort_keys=True)

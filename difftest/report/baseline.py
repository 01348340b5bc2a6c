"""A run beside an earlier one: which figures got worse, which cases are new and which are missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difftest.cases.case import Case
from difftest.errors import UsageError
from difftest.report import jsonl
from difftest.report.record import READ, SCHEMA
from difftest.wording import counted, in_a_line

MOST_LINES = 12
STATISTICS = ("differing_rate", "rstd_error_max")  # of the verdict; a figure that grows is worse
COUNTS = ("mismatches", "max_ulp")  # of each output, against the reference


@dataclass(frozen=True, slots=True)
class Worse:
    """One figure of one case that grew. `index`: the case's place in this run."""

    index: int
    case: str
    figure: str
    before: float
    now: float

    def __str__(self) -> str:
        return f"{self.case}: {self.figure} {self.before:.9g}, now {self.now:.9g}"


@dataclass(frozen=True, slots=True)
class Change:
    """A run against its baseline. `better`: figures that fell. `new`, `missing`: cases that only one of the two has.

    `environment`: what is of another version, name -> before and now.
    """

    file: str
    compared: int
    worse: tuple[Worse, ...]
    better: int
    new: int
    missing: tuple[str, ...]
    environment: Mapping[str, tuple[str, str]]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**dataclasses.asdict(self), "missing": list(self.missing), "worse": [dataclasses.asdict(w) for w in self.worse]}

    def lines(self) -> list[str]:
        """What to tell the reader: what is worse first, each figure in a line, then what else is different."""
        found = [f"worse than {self.file}: {each}" for each in self.worse[:MOST_LINES]]
        if len(self.worse) > MOST_LINES:
            found.append(f"... and {len(self.worse) - MOST_LINES} more figures are worse")
        counts = (
            f"{counted(len(self.worse), 'figure')} worse, {self.better} better, in {counted(self.compared, 'case')} of both runs"
        )
        found.append(f"{self.file}: {counts}; {counted(self.new, 'case')} new, {len(self.missing)} missing")
        if self.missing:
            found.append(f"missing: {'; '.join(self.missing[:3])}{' ...' if len(self.missing) > 3 else ''}")
        if self.environment and (self.worse or self.better):
            versions = (f"{name} {was}, now {is_now}" for name, (was, is_now) in self.environment.items())
            found.append(f"other versions: {'; '.join(versions)}")
        return found


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier run: its file and the document in it."""

    file: str
    document: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """The run in a file. UsageError for what is none, or is of a schema that is not read."""
        document = jsonl.read("--baseline", path, SCHEMA, "a run's JSON", READ)
        cases, environment = document.get("cases"), document.get("environment", {})
        if not isinstance(cases, list) or not isinstance(environment, Mapping):
            raise UsageError(f"--baseline: {path}: its cases are no list, or its environment no object")
        for index, record in enumerate(cases):
            try:
                _identity(record)
                _figures(record)
            except ValueError as error:
                raise UsageError(f"--baseline: {path} has a case that is none, {index}: {error}") from None
            except (LookupError, TypeError, AttributeError) as error:
                raise UsageError(f"--baseline: {path} has a case that is none, {index}: {in_a_line(error)}") from None
        return cls(str(path), document)

    def check(self, cases: Sequence[Case], against: Sequence[str]) -> None:
        """UsageError where a run of these cases has none in common with this one."""
        planned = {(_anywhere(case), name) for case in cases for name in against}
        if planned.isdisjoint(_by_identity(self.document)):
            raise UsageError(f"--baseline: {self.file} has none of this run's cases; the same options give the same cases")

    def against(self, now: Mapping[str, Any]) -> Change:
        """The run `now` against this one, where both have the case."""
        before = self.document
        old, new = _by_identity(before), _by_identity(now)
        common = [each for each in new if each in old]
        worse: list[Worse] = []
        better = 0
        for each in common:
            for figure, was, is_now in _pairs(old[each], new[each]):
                if is_now > was:
                    worse.append(Worse(now["cases"].index(new[each]), _said(new[each]), figure, was, is_now))
                better += is_now < was
        missing = tuple(_said(record) for each, record in old.items() if each not in new)
        return Change(
            self.file, len(common), tuple(worse), better, len(new) - len(common), missing, _changed(before, now, "environment")
        )


def _changed(before: Mapping[str, Any], now: Mapping[str, Any], part: str) -> dict[str, tuple[str, str]]:
    """Name -> before and now, of what is other text in that part of the two documents."""
    old, new = before.get(part, {}), now.get(part, {})
    return {name: (str(old.get(name)), str(new.get(name))) for name in {**old, **new} if old.get(name) != new.get(name)}


def _by_identity(document: Mapping[str, Any]) -> dict[tuple[Case, str], Mapping[str, Any]]:
    return {_identity(record): record for record in document["cases"]}


def _identity(record: Mapping[str, Any]) -> tuple[Case, str]:
    """Which case a record is, wherever it ran and whatever made it, and what it was held against."""
    return _anywhere(Case.from_json(record)), record["against"]


def _anywhere(case: Case) -> Case:
    return dataclasses.replace(case, device="cpu", origin="grid")


def _said(record: Mapping[str, Any]) -> str:
    shape = "x".join(map(str, (*record["lead"], record["width"])))
    return f"{record['op']} {record['dtype']} {shape}, {record['regime']}, seed {record['seed']}, against {record['against']}"


def _pairs(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Each figure of a case, before and now; one that either of the two lacks is left out."""
    before, now = _figures(old), _figures(new)
    yield from ((name, before[name], now[name]) for name in now if name in before)


def _figures(record: Mapping[str, Any]) -> dict[str, float]:
    """A result's figures by name; the larger one is the worse."""
    found = {"differs": float(record["verdict"] == "differs")}
    for output, counts in record["outputs"].items():
        found |= {f"{output} {name}": float(counts[name]) for name in COUNTS}
        found[f"{output} class mismatches"] = float(sum(counts["classes"].values()))
    return found | {name: float(record["statistics"][name]) for name in STATISTICS if name in record["statistics"]}

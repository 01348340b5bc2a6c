"""The JSON that a run leaves, and reading a case back from such a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from difftest import json_text, system
from difftest.cases.case import READ as CASE_SCHEMAS
from difftest.cases.case import SCHEMA as CASE_SCHEMA
from difftest.cases.case import Case, check_schema
from difftest.cases.given import Values
from difftest.cases.request import Request
from difftest.errors import TesterError, UsageError
from difftest.report import summary
from difftest.report.accounts import accounts
from difftest.report.files import not_written, write_json
from difftest.run.check import Result
from difftest.run.session import Outcome
from difftest.wording import counted

SCHEMA = "numba-kernels/difftest/2"
MOST_SAVED = 100  # of a folder's cases, that run ahead of a run's own
READ = (SCHEMA, "numba-kernels/difftest/1")  # whose cases are of the case's first schema


def document(
    outcome: Outcome, environment: Mapping[str, str], request: Mapping[str, Any], coverage: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The run as plain data. `verdict` is "conforms", "differs" or "no evidence"; README and `--help` say the rest."""
    return {
        "schema": SCHEMA,
        "verdict": summary.verdict(outcome),
        "interrupted": outcome.interrupted,
        "seconds": round(outcome.seconds, 3),
        "environment": dict(environment),
        "request": dict(request),
        "not_run": outcome.not_run,
        "comparisons": accounts(outcome),
        "skipped": summary.skips_by_reason(outcome.skips),
        "stability": summary.stability(outcome.results),
        "leanings": [
            {"op": op, "dtype": dtype, "contract": code, "reason": reason}
            for (op, dtype, code), reason in summary.leanings(outcome.results).items()
        ],
        "coverage": dict(coverage) if coverage else None,
        "cases": [result.to_json() for result in outcome.results],
    }


def save_case(folder: Path, result: Result) -> Path:
    """Saves one result as a case file that `replay` takes; the name says which case it is."""
    case = result.case
    try:
        system.make_folder(folder)
    except OSError as error:
        raise not_written(folder, error) from None
    kept = "-shrunk" if isinstance(case.given, Values) else ""
    path = folder / f"{case.op}-{case.dtype}-{case.width}-{case.regime}-{case.seed}{kept}.json"
    write_json(path, {"schema": CASE_SCHEMA, **result.to_json()})
    return path


def saved_cases(folder: Path, candidate: str, request: Request) -> list[Case]:
    """The cases in a folder in which that candidate failed before and that the request has room for, the newest first.

    What is no such case is left alone.
    """
    found = []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            case, saved = load_case(str(path))
            mine = saved.get("candidate") == candidate and case.op in request.contracts and case.dtype in request.dtypes
            if mine and case.contract.code == request.contracts[case.op].code and (case.given is None or case.inputs()):
                found.append(replace(case, device=request.device, origin="saved"))
        except (TesterError, ValueError):
            continue
    return found[:MOST_SAVED]


def load_case(spec: str) -> tuple[Case, dict[str, Any]]:
    """The case in `FILE.json`, or in `FILE.json#INDEX` of a run's cases, and its whole record. Else UsageError."""
    name, index = _file_and_index(spec)
    try:
        text = json_text.read(Path(name))
    except ValueError as error:
        raise UsageError(f"CASE: {name}: {error}") from None
    try:
        data = json_text.parse(text)
    except ValueError as error:
        raise UsageError(f"CASE: {name} is not JSON: {error}") from None
    try:
        check_schema(data if isinstance(data, dict) else {}, *READ, *CASE_SCHEMAS)
        saved = _saved(name, index, data)
        return Case.from_json(saved), saved
    except ValueError as error:
        raise UsageError(f"CASE: {name}: {error}") from None


def _file_and_index(spec: str) -> tuple[str, str | None]:
    """`FILE#INDEX` in its two parts; a file that is there may have # in its name."""
    name, mark, index = spec.rpartition("#")
    try:
        whole = not mark or Path(spec).exists()
    except (OSError, ValueError):  # no path of a file
        whole = True
    return (spec, None) if whole else (name, index)


def _saved(name: str, index: str | None, data: Any) -> dict[str, Any]:
    """The record in a document: its case of that index, or what it is itself. ValueError where there is none."""
    if not isinstance(data, dict) or "cases" not in data:
        if index is not None:
            raise ValueError(f"#{index} is not allowed; allowed: an index into a run's cases, and this is no run")
        return data
    cases = data["cases"]
    if not isinstance(cases, list) or not cases:
        raise ValueError("it holds no case")
    if index is None or not re.fullmatch(r"[0-9]{1,9}", index) or int(index) >= len(cases):
        raise ValueError(f"it holds {counted(len(cases), 'case')}; name one as {name}#INDEX, from 0 to {len(cases) - 1}")
    return cases[int(index)]

"""The JSON that a run leaves: its schema, written whole or not at all; and reading a case back from such a file.

Imports this package's cases, session and summary.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from difftest import summary
from difftest.cases import Case
from difftest.errors import UsageError
from difftest.run import Result
from difftest.session import Outcome

SCHEMA = "numba-kernels/difftest/1"
CASE_SCHEMA = "numba-kernels/difftest-case/1"


def document(outcome: Outcome, environment: Mapping[str, str], request: Mapping[str, Any]) -> dict[str, Any]:
    """The run as plain data. `verdict` is "conforms", "differs" or "no evidence"; README and `--help` say the rest."""
    return {
        "schema": SCHEMA,
        "verdict": summary.verdict(outcome),
        "interrupted": outcome.interrupted,
        "seconds": round(outcome.seconds, 3),
        "environment": dict(environment),
        "request": dict(request),
        "not_run": outcome.not_run,
        "skipped": summary.skips_by_reason(outcome.skips),
        "stability": summary.stability(outcome.results),
        "cases": [result.to_json() for result in outcome.results],
    }


def check_writable(option: str, path: Path) -> None:
    """UsageError when a file can't be written there; asked before a run, not after it."""
    if path.is_dir():
        raise UsageError(f"{option}: {path} is a folder")
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"{option}: no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"{option}: {path} is not writable")


def write_text(path: Path, text: str) -> None:
    """Writes the file in one step: a reader sees the old content or all of the new."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8") as file:
        temporary = Path(file.name)
        file.write(text)
    try:
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Writes plain data as JSON, in one step."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def save_case(folder: Path, result: Result) -> Path:
    """Saves one result as a case file that `replay` takes; the name says which case it is."""
    case = result.case
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case.op}-{case.dtype}-{case.width}-{case.regime}-{case.seed}.json"
    write_json(path, {"schema": CASE_SCHEMA, **result.to_json()})
    return path


def load_case(spec: str) -> tuple[Case, dict[str, Any]]:
    """The case in `FILE.json`, or in `FILE.json#INDEX` of a run's cases, and its whole record. Else UsageError."""
    name, _, index = spec.partition("#")
    try:
        data = json.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"CASE: {name}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"CASE: {name} is not JSON: {error}") from None
    record = data
    if isinstance(data, dict) and isinstance(data.get("cases"), list):
        count = len(data["cases"])
        if not index.isdigit() or int(index) >= count:
            raise UsageError(f"CASE: {name} holds {count} cases; name one as {name}#INDEX, from 0 to {count - 1}")
        record = data["cases"][int(index)]
    if not isinstance(record, dict):
        raise UsageError(f"CASE: {name} holds no case")
    try:
        return Case.from_json(record), record
    except ValueError as error:
        raise UsageError(f"CASE: {name}: {error}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""The JSON that a run leaves: its schema, written whole or not at all; and reading a case back from such a file.

Imports this package's cases, session and summary.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from difftest import summary
from difftest.cases import Case
from difftest.errors import LackingError, UsageError
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
    """UsageError when a file can't be written there; asked before a run, not after it.

    Refused too: a device, a pipe, and the file that standard output goes to. A rename would put a file in their place.
    """
    if str(path) == "-":
        raise UsageError(f"{option}: a file is needed, {path} is none: nothing but the report goes to standard output")
    try:
        found = _state(path)
        folder = _target(path).parent
        if found and stat.S_ISDIR(found.st_mode):
            raise UsageError(f"{option}: {path} is a folder")
        if found and not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{option}: {path} is not a regular file")
        if found and _is_standard_output(found):
            raise UsageError(f"{option}: {path} is where standard output goes; name another file")
        if not folder.is_dir():
            raise UsageError(f"{option}: no folder {folder if path.is_symlink() else path.parent}")
        if not os.access(folder, os.W_OK) or (found and not os.access(path, os.W_OK)):
            raise UsageError(f"{option}: {path} is not writable")
    except OSError as error:
        raise UsageError(f"{option}: {path}: {error.strerror}") from None


def check_folder(option: str, folder: Path) -> None:
    """UsageError when no files can be left in the folder, which need not be there yet and is not made by this."""
    try:
        there = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), Path())
        if not there.is_dir():
            raise UsageError(f"{option}: {there} is not a folder")
        if not os.access(there, os.W_OK):
            raise UsageError(f"{option}: {there} is not writable")
    except OSError as error:
        raise UsageError(f"{option}: {folder}: {error.strerror}") from None


def check_apart(files: Mapping[str, Path | None], folders: Mapping[str, Path | None]) -> None:
    """UsageError where two options, each with its path, would leave their files in one place. Folders may be shared."""
    taken: dict[Path, str] = {}
    for option, path in (*files.items(), *folders.items()):
        if path is None:
            continue
        first = taken.get(_target(path))
        if first:
            raise UsageError(f"{option}: {path} is what {first} names too")
        if option in files:
            taken[_target(path)] = option


def write_text(path: Path, text: str) -> None:
    """Writes the file in one step: a reader sees the old content or all of the new. A symbolic link stays, its target changes.

    LackingError when that fails, which leaves the old content as it was.
    """
    target = _target(path)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=".difftest-", delete=False, encoding="utf-8") as file:
            temporary = Path(file.name)
            file.write(text)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except BaseException as error:
        if temporary:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise not_written(path, error) from None
        raise


def write_each(*files: tuple[Path | None, Callable[[Path], object]]) -> None:
    """Calls each writer with its path, if it has one. The first that can't write is the error, once all have been called."""
    failed = []
    for path, write in files:
        if path is None:
            continue
        try:
            write(path)
        except LackingError as error:
            failed.append(error)
        except OSError as error:
            failed.append(not_written(path, error))
    if failed:
        raise failed[0]


def not_written(path: Path, error: OSError) -> LackingError:
    """The error for a file that could not be written after all."""
    return LackingError(f"{path} could not be written: {error.strerror or error}")


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Writes plain data as JSON, in one step."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def save_case(folder: Path, result: Result) -> Path:
    """Saves one result as a case file that `replay` takes; the name says which case it is."""
    case = result.case
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(folder, error) from None
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


def _state(path: Path) -> os.stat_result | None:
    """What is there, symbolic links followed; None for nothing yet."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _target(path: Path) -> Path:
    """Where the path leads once symbolic links are followed."""
    return Path(os.path.realpath(path))


def _is_standard_output(found: os.stat_result) -> bool:
    try:
        return os.path.samestat(found, os.fstat(1))
    except OSError:  # it is closed
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""The files and folders that options name: checked before a run, written whole or not at all after it."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from difftest import system
from difftest.errors import LackingError, UsageError


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

    It is on the disk when this returns. LackingError when any of this fails, which leaves the old content as it was.
    """
    target = _target(path)
    temporary = None
    try:
        with system.create(target.parent) as file:
            temporary = Path(file.name)
            system.write(file, text)
            system.sync(file)
        temporary.chmod(0o666 & ~_umask())
        system.rename(temporary, target)
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


def need(option: str, library: str) -> None:
    """LackingError, with the cure, when an optional library is not installed."""
    if importlib.util.find_spec(library) is None:
        raise LackingError(f"{option}: needs {library}, which is not installed: pip install 'numba-kernels[report]'")


def make_folder(option: str, folder: Path) -> None:
    """Makes the folder; UsageError when it can't be made or written to."""
    try:
        system.make_folder(folder)
    except OSError as error:
        raise UsageError(f"{option}: {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{option}: {folder} is not writable")


def _state(path: Path) -> os.stat_result | None:
    """What is there, symbolic links followed; None for nothing yet."""
    try:
        return system.state(path)
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

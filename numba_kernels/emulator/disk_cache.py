"""Compiled kernels on disk, so that a second process need not compile them: a second a kernel becomes hundredths.

Numba's own file cache does the storing. It keys by file and line, so each kernel's entry is given a file of its own whose
name is a digest of all that its machine code depends on: the rewritten source, every captured value, the code of the
intrinsics among them, the files of their packages. What can't be digested is not kept. ``NUMBA_KERNELS_EMULATOR_CACHE`` names
another directory; empty, nothing is kept. A file that is not as it was written is compiled again, and a disk that takes nothing
more costs time alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import sys
import types as python_types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

VARIABLE = "NUMBA_KERNELS_EMULATOR_CACHE"
MOST_FILES = 512  # of a package, that are read for a digest: hundredths of a second
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, numba.types.Type)


class NotDigestible(Exception):
    """A value that the digest does not know how to read."""


def directory() -> Path | None:
    """Where compiled kernels are kept; None where that is nowhere, or can't be written."""
    named = os.environ.get(VARIABLE)
    if named == "":
        return None
    path = Path(named) if named else Path(__file__).parent / "__pycache__" / "kernels"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK) else None


def entry_file(text: str, namespace: dict[str, Any]) -> Path | None:
    """The file for an entry of source ``text`` whose names mean ``namespace``: written if it is new; None: don't keep it."""
    where = directory()
    if where is None:
        return None
    try:
        name = digest((text, sorted(namespace.items()), numba.__version__, np.__version__, sys.version))
    except NotDigestible:
        return None
    path = where / f"kernel_{name}.py"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        try:
            temporary.write_text(text)
            temporary.replace(path)
        except OSError:
            return None
    return path


class CheckedCache(FunctionCache):
    """Numba's cache of one function, whose files are read only where they are what was written.

    Their digests stand in a file beside them, which is written last. Numba unpickles what it finds: a file that was cut short
    raises anything, and machine code of which a bit is wrong is run.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code; None where there is none, or it is damaged, which is then removed."""
        if self._sums.exists() and self._read_sums() == self._sums_now():
            with contextlib.suppress(Exception):  # another version's, say
                return super().load_overload(sig, target_context)
        self._remove()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps the code, whole or not at all."""
        try:
            super().save_overload(sig, data)
            temporary = self._sums.with_suffix(f".{os.getpid()}")
            temporary.write_text(self._sums_now())
            temporary.replace(self._sums)
        except OSError:
            self._remove()

    @property
    def _sums(self) -> Path:
        return Path(self.cache_path) / f"{self._impl.filename_base}.sums"

    def _read_sums(self) -> str:
        try:
            return self._sums.read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def _sums_now(self) -> str:
        files = sorted(Path(self.cache_path).glob(f"{self._impl.filename_base}.*nb[ic]"))
        return "".join(f"{hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()} {file.name}\n" for file in files)

    def _remove(self) -> None:
        for file in Path(self.cache_path).glob(f"{self._impl.filename_base}.*"):
            with contextlib.suppress(OSError):
                file.unlink()


def keep(entry: Dispatcher) -> None:
    """Has what ``entry`` compiles kept, in files beside that of its code."""
    with contextlib.suppress(RuntimeError, OSError):  # Numba finds no place to write to
        entry._cache = CheckedCache(entry.py_func)  # type: ignore[attr-defined]


@contextlib.contextmanager
def locked(file: Path | None) -> Iterator[None]:
    """While one process compiles an entry, others that want it wait, and then find it."""
    try:
        import fcntl

        lock = None if file is None else open(file.with_suffix(".lock"), "w")  # noqa: SIM115 closed below
    except (ImportError, OSError):
        lock = None
    if lock is None:
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed, or its process ends
        yield


def digest(value: Any) -> str:
    """A name for a value's content; raises :class:`NotDigestible`."""
    state = hashlib.blake2b(digest_size=16)
    _package.cache_clear()  # its files may have changed since the last digest
    _feed(state, value, [])
    return state.hexdigest()


def _feed(state: Any, value: Any, open_values: list[int]) -> None:
    def say(*parts: object) -> None:
        state.update("\x1f".join(map(str, parts)).encode() + b"\x1e")

    say(type(value).__module__, type(value).__qualname__)
    if isinstance(value, PLAIN):
        say(repr(value))
        return
    if isinstance(value, python_types.ModuleType):
        say(value.__name__)
        return
    if isinstance(value, type | python_types.BuiltinFunctionType | np.ufunc):
        say(getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__))
        return
    if id(value) in open_values:
        say("again", open_values.index(id(value)))
        return
    inner = [*open_values, id(value)]
    if isinstance(value, tuple | list):
        say(len(value))
        for part in value:
            _feed(state, part, inner)
    elif isinstance(value, dict):
        _feed(state, sorted(value.items(), key=repr), inner)
    elif isinstance(value, python_types.CodeType):
        say(value.co_name, value.co_code.hex(), value.co_names, value.co_varnames, value.co_freevars)
        _feed(state, value.co_consts, inner)
    elif isinstance(value, python_types.FunctionType):
        say(value.__qualname__, _package(value.__module__ or "", value.__code__.co_filename))
        _feed(state, (value.__code__, value.__defaults__), inner)
        for cell in value.__closure__ or ():
            _feed(state, cell.cell_contents, inner)
    elif isinstance(value, _Intrinsic):
        _feed(state, value._defn, inner)
    elif isinstance(value, Dispatcher):
        say(sorted(value.targetoptions.items(), key=repr))
        _feed(state, value.py_func, inner)
    elif hasattr(value, "py_func"):
        _feed(state, value.py_func, inner)
    elif dataclasses.is_dataclass(value):
        _feed(state, [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)], inner)
    elif type(value).__reduce__ is object.__reduce__ and hasattr(value, "__dict__"):
        say(_package(type(value).__module__, ""))
        _feed(state, vars(value), inner)
    else:
        raise NotDigestible(type(value))


@functools.lru_cache(64)
def _package(module: str, file: str) -> str:
    """A digest of the files that a function's names can come from: its own, and those of its top package."""
    top = module.partition(".")[0]
    if top in ("numba", "numpy", "llvmlite"):
        return top  # their versions are in the digest
    folders = tuple(getattr(sys.modules.get(top), "__path__", ()))
    of_package = _files(folders) or _loaded(top, len(sys.modules))
    return "".join(_file_digest(f, _stamp(f)) for f in sorted({file, *of_package}) if f)


@functools.lru_cache(64)
def _files(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The sources below a package's folders: all, since a key must not change with what else a program imports, but for what
    Python and this module made of them; none of a large package, of which what is loaded has to do.
    """
    own = (path for folder in folders for path in Path(folder).rglob("*.py") if "__pycache__" not in path.parts)
    found = [str(path) for path in itertools.islice(own, MOST_FILES + 1)]
    return tuple(found) if len(found) <= MOST_FILES else ()


@functools.lru_cache(256)
def _loaded(top: str, modules: int) -> tuple[str, ...]:
    """The files of what is loaded of a top package, looked for anew where the number of modules has changed."""
    own = (m for n, m in list(sys.modules.items()) if n == top or n.startswith(top + "."))
    return tuple(getattr(m, "__file__", None) or "" for m in own)


def _stamp(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError as error:
        raise NotDigestible(file) from error
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(4096)
def _file_digest(file: str, stamp: tuple[int, int]) -> str:
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=16).hexdigest()

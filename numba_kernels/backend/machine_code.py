"""Machine code of a kernel: it came with the package, or is in the disk cache, or is compiled now.

Numba is imported only where a kernel must be compiled.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..undisturbed import undisturbed
from .compiled import Compiled, sources
from .shipped import shipped

if TYPE_CHECKING:
    from ..kernels.config import Kernel


def machine_code(kernel: Kernel, cc: tuple[int, int]) -> Compiled:
    """Machine code for a kernel on compute capability ``cc``."""
    brought = shipped(kernel, cc)
    if brought is not None:
        return brought

    def make_ptx() -> str:
        from .compile import compile_to_ptx

        return compile_to_ptx(kernel, cc)

    return cached_code(repr(kernel), cc, make_ptx)


def is_stored(kernel: Kernel, cc: tuple[int, int]) -> bool:
    """Whether `machine_code` would find it without compiling."""
    return shipped(kernel, cc) is not None or _read(_cached_path(repr(kernel), cc)) is not None


def cached_code(name: str, cc: tuple[int, int], make_ptx: Callable[[], str]) -> Compiled:
    """Machine code of PTX with one entry, from the disk cache where it has it. ``name`` says all that the PTX depends on, beside
    this package's sources and the compilers."""
    path = _cached_path(name, cc)
    stored = _read(path)
    if stored is not None:
        return stored
    code = undisturbed(_compiled, name, cc, make_ptx)
    _write(path, code)
    return code


def _compiled(name: str, cc: tuple[int, int], make_ptx: Callable[[], str]) -> Compiled:
    from .compile import assemble

    ptx = make_ptx()
    entry = re.search(r"\.visible \.entry (\w+)\(", ptx)
    if entry is None:
        raise RuntimeError(f"no entry in the PTX of {name}")
    return Compiled(assemble(ptx, cc)[0], entry.group(1))


def cache_folder() -> Path:
    """``$NUMBA_KERNELS_CACHE``, or ``numba_kernels`` in the user's cache folder."""
    given = os.environ.get("NUMBA_KERNELS_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba_kernels"


def _cached_path(name: str, cc: tuple[int, int]) -> Path:
    return cache_folder() / f"{hashlib.sha256(f'{_generation()}|{cc}|{name}'.encode()).hexdigest()[:40]}.cubin"


@cache
def _generation() -> str:
    """What the code depends on beside the kernel: our sources and the compilers' versions."""
    digest = hashlib.sha256(sources().encode())
    for name in ("numba", "numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvcc", "nvidia-nvjitlink"):
        try:
            digest.update(f"{name} {importlib.metadata.version(name)}".encode())
        except importlib.metadata.PackageNotFoundError:
            digest.update(f"{name} -".encode())
    return digest.hexdigest()


def _read(path: Path) -> Compiled | None:
    """A cached entry; None where there is none or where it was cut short."""
    try:
        digest, entry, cubin = path.read_bytes().split(b"\n", 2)
    except (OSError, ValueError):
        return None
    if hashlib.sha256(cubin).hexdigest().encode() != digest:
        return None
    return Compiled(cubin, entry.decode())


def _write(path: Path, code: Compiled) -> None:
    """Write whole or not at all; a cache that can't be written costs time, not the result."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
            part.write(hashlib.sha256(code.cubin).hexdigest().encode() + b"\n" + code.entry.encode() + b"\n" + code.cubin)
        os.replace(part.name, path)
    except OSError:
        pass

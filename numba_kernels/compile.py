"""From a kernel's spec to machine code, cached on disk between processes. Needs libNVVM and nvJitLink, not a GPU."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from numba import types

from .gated import GatedSpec, make_gated_kernel
from .rmsnorm import NormSpec, make_norm_kernel

Spec = NormSpec | GatedSpec
NORM_SIGNATURE = (types.uint64,) * 4 + (types.int64,) * 9
GATED_SIGNATURE = (types.uint64,) * 2 + (types.int64,) * 4
SOURCES = (
    "backend/*.py",
    "kernels/*.py",
    "formats.py",
    "reduction.py",
    "rmsnorm.py",
    "gated.py",
    "compile.py",
)  # patterns in this folder


@dataclass(frozen=True, slots=True)
class Machine:
    """Compiled code: the cubin for one architecture, and its entry's name."""

    cubin: bytes
    entry: str


def kernel_function(spec: Spec) -> Callable[..., Any]:
    """The Python function that ``spec`` stands for: what is compiled here and what the CPU replay runs."""
    return make_norm_kernel(spec) if isinstance(spec, NormSpec) else make_gated_kernel(spec)


def compile_to_ptx(spec: Spec, cc: tuple[int, int]) -> str:
    """PTX for compute capability ``cc``, with the block size as its launch bound."""
    from numba import cuda

    signature = NORM_SIGNATURE if isinstance(spec, NormSpec) else GATED_SIGNATURE
    bounds = (spec.threads, spec.blocks) if isinstance(spec, NormSpec) and spec.blocks > 1 else spec.threads
    ptx, _ = cuda.compile_ptx(kernel_function(spec), signature, cc=cc, launch_bounds=bounds)  # type: ignore[call-arg]
    return ptx


def assemble(ptx: str, cc: tuple[int, int]) -> tuple[bytes, str]:
    """The cubin of ``ptx`` and ptxas's report (registers, spills, stack)."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    options = LinkerOptions(arch=f"sm_{cc[0]}{cc[1]}", ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=options)
    return bytes(linker.link("cubin").code), linker.get_info_log()


def machine_code(spec: Spec, cc: tuple[int, int]) -> Machine:
    """Machine code for ``spec``, from the disk cache where it has it."""
    path = cache_folder() / f"{_key(spec, cc)}.cubin"
    stored = _read(path)
    if stored is not None:
        return stored
    ptx = compile_to_ptx(spec, cc)
    entry = re.search(r"\.visible \.entry (\w+)\(", ptx)
    if entry is None:
        raise RuntimeError(f"no entry in the PTX of {spec}")
    code = Machine(assemble(ptx, cc)[0], entry.group(1))
    _write(path, code)
    return code


def cache_folder() -> Path:
    """``$NUMBA_KERNELS_CACHE``, or ``numba_kernels`` in the user's cache folder."""
    given = os.environ.get("NUMBA_KERNELS_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba_kernels"


def _key(spec: Spec, cc: tuple[int, int]) -> str:
    return hashlib.sha256(f"{_generation()}|{cc}|{spec!r}".encode()).hexdigest()[:40]


@cache
def _generation() -> str:
    """What the code depends on beside the spec: our sources and the compilers' versions."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(path for pattern in SOURCES for path in here.glob(pattern)):
        digest.update(source.read_bytes())
    for package in ("numba", "numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvcc", "nvidia-nvjitlink"):
        try:
            digest.update(f"{package} {importlib.metadata.version(package)}".encode())
        except importlib.metadata.PackageNotFoundError:
            digest.update(f"{package} -".encode())
    return digest.hexdigest()


def _read(path: Path) -> Machine | None:
    """A cached entry; None where there is none or where it was cut short."""
    try:
        digest, entry, cubin = path.read_bytes().split(b"\n", 2)
    except (OSError, ValueError):
        return None
    if hashlib.sha256(cubin).hexdigest().encode() != digest:
        return None
    return Machine(cubin, entry.decode())


def _write(path: Path, code: Machine) -> None:
    """Write whole or not at all; a cache that can't be written costs time, not the result."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
            part.write(hashlib.sha256(code.cubin).hexdigest().encode() + b"\n" + code.entry.encode() + b"\n" + code.cubin)
        os.replace(part.name, path)
    except OSError:
        pass

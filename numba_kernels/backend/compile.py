"""From a kernel to machine code, cached on disk between processes. Needs libNVVM and nvJitLink, not a GPU."""

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

from ..kernels.activations import activation_of
from ..kernels.config import GatedConfig, Kernel, NormConfig, NormOperation, TextbookConfig
from ..kernels.gated import make_gated_kernel
from ..kernels.norms import make_norm_kernel
from ..kernels.textbook import make_textbook_gated, make_textbook_norm

NORM_SIGNATURE = (types.uint64,) * 4 + (types.int64,) * 9
GATED_SIGNATURE = (types.uint64,) * 2 + (types.int64,) * 4
SOURCES = ("backend/*.py", "kernels/*.py", "formats.py")  # what compiled code depends on: patterns in the package's folder


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code: the cubin for one architecture, and its entry's name."""

    cubin: bytes
    entry: str


def kernel_function(kernel: Kernel) -> Callable[..., Any]:
    """The Python function of a kernel: what is compiled here and what the emulator runs."""
    operation, config = kernel.operation, kernel.config
    if isinstance(operation, NormOperation):
        if isinstance(config, TextbookConfig):
            return make_textbook_norm(operation, config)
        assert isinstance(config, NormConfig)
        return make_norm_kernel(operation, config)
    if isinstance(config, TextbookConfig):
        return make_textbook_gated(operation, config)
    assert isinstance(config, GatedConfig)
    return make_gated_kernel(operation, config)


def signature_of(kernel: Kernel) -> tuple[Any, ...]:
    """The types of the kernel's parameters."""
    if isinstance(kernel.operation, NormOperation):
        return NORM_SIGNATURE
    return GATED_SIGNATURE + (types.int64,) * len(activation_of(kernel.operation.activation).parameters)


def compile_to_ptx(kernel: Kernel, cc: tuple[int, int]) -> str:
    """PTX for compute capability ``cc``, with the block size as its launch bound.

    Products and sums stay apart (``mul.rn``, ``add.rn``): the fused multiply-adds are those that the source names, so that a
    result's bits are the source's, with any compiler and on the emulator. ``cuda.compile_ptx`` has no such option.
    """
    from numba.cuda.compiler import compile_cuda, kernel_fixup  # type: ignore[attr-defined]
    from numba.cuda.cudadrv import nvvm

    config = kernel.config
    bounds = (config.threads, config.blocks_per_processor) if config.blocks_per_processor > 1 else config.threads
    options = {"opt": 3, "fma": False}
    made = compile_cuda(kernel_function(kernel), types.void, signature_of(kernel), nvvm_options=options, cc=cc)
    entry = made.library.get_function(made.fndesc.llvm_func_name)
    kernel_fixup(entry, False)
    nvvm.set_launch_bounds(entry, bounds)  # type: ignore[attr-defined]
    return made.library.get_asm_str(cc=cc)


def assemble(ptx: str, cc: tuple[int, int]) -> tuple[bytes, str]:
    """The cubin of ``ptx`` and ptxas's report (registers, spills, stack)."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    options = LinkerOptions(arch=f"sm_{cc[0]}{cc[1]}", ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=options)
    return bytes(linker.link("cubin").code), linker.get_info_log()


def machine_code(kernel: Kernel, cc: tuple[int, int]) -> Compiled:
    """Machine code for a kernel, from the disk cache where it has it."""
    return cached_code(repr(kernel), cc, lambda: compile_to_ptx(kernel, cc))


def cached_code(name: str, cc: tuple[int, int], make_ptx: Callable[[], str]) -> Compiled:
    """Machine code of PTX with one entry, from the disk cache where it has it. ``name`` says all that the PTX depends on, beside
    this package's sources and the compilers."""
    path = cache_folder() / f"{_key(name, cc)}.cubin"
    stored = _read(path)
    if stored is not None:
        return stored
    ptx = make_ptx()
    entry = re.search(r"\.visible \.entry (\w+)\(", ptx)
    if entry is None:
        raise RuntimeError(f"no entry in the PTX of {name}")
    code = Compiled(assemble(ptx, cc)[0], entry.group(1))
    _write(path, code)
    return code


def cache_folder() -> Path:
    """``$NUMBA_KERNELS_CACHE``, or ``numba_kernels`` in the user's cache folder."""
    given = os.environ.get("NUMBA_KERNELS_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba_kernels"


def _key(name: str, cc: tuple[int, int]) -> str:
    return hashlib.sha256(f"{_generation()}|{cc}|{name}".encode()).hexdigest()[:40]


@cache
def _generation() -> str:
    """What the code depends on beside the kernel: our sources and the compilers' versions."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for source in sorted(path for pattern in SOURCES for path in package.glob(pattern)):
        digest.update(source.read_bytes())
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

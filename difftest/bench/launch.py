"""Launching this room's kernels in the place of one of ours: with its grid, block, cluster and dependent launch."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import types

from difftest.bench import kernels
from numba_kernels.backend.compile import signature_of
from numba_kernels.backend.machine_code import Compiled, cached_code
from numba_kernels.kernels.config import Kernel
from numba_kernels.runtime import packing

Make = Callable[[Kernel], Callable[..., Any]]
MOST_STATIC = 48 * 1024  # bytes of shared memory that a block has without permission
MOST_CLUSTER = 8  # blocks of a cluster without permission

# What a maker's kernel takes beyond the parameters of the kernel that it is made for.
_MORE: dict[Make, tuple[Any, ...]] = {kernels.make_norm_with_prefetch: (types.uint64, *(types.int64,) * 3)}


def compile_to_ptx(make: Make, kernel: Kernel, cc: tuple[int, int]) -> str:
    """PTX of the kernel that `make` makes for ours, with the same bounds. What `make` raises where it has none."""
    from numba import cuda

    config = kernel.config
    bounds = (config.threads, config.blocks_per_processor) if config.blocks_per_processor > 1 else config.threads
    signature = (*signature_of(kernel), *_MORE.get(make, ()))
    return cuda.compile_ptx(make(kernel), signature, cc=cc, launch_bounds=bounds)[0]  # type: ignore


def machine_code(make: Make, kernel: Kernel, cc: tuple[int, int]) -> Compiled:
    """Its machine code, from the disk cache where it has it."""
    return cached_code(f"{make.__name__} {kernel!r} {_sources()}", cc, lambda: compile_to_ptx(make, kernel, cc))


def launcher_of(
    make: Make, kernel: Kernel, grid: tuple[int, int, int], constants: tuple[int, ...], device: int, shared: int = 0
) -> Callable[..., None]:
    """`launch(*addresses)` on torch's current stream; the kernel's other parameters are `constants`, 8 bytes each.

    ValueError where a block would need a permission that only our own launches ask for.
    """
    import torch
    from cuda.bindings import driver

    config = kernel.config
    if shared > MOST_STATIC or config.cluster > MOST_CLUSTER:
        raise ValueError(f"{shared} bytes of shared memory, {config.cluster} blocks a cluster: more than a launch has unasked")
    function = _loaded(make, kernel, device)[1]
    asked = packing.launch_config(grid, config.threads, shared, pdl=config.pdl, cluster=config.cluster)

    def launch(*addresses: int) -> None:
        values = (*addresses, *constants)
        asked.hStream = driver.CUstream(torch.cuda.current_stream(device).cuda_stream)
        packing.check(driver.cuLaunchKernelEx(asked, function, (values, (ctypes.c_int64,) * len(values)), 0)[0])

    return launch


@cache
def _loaded(make: Make, kernel: Kernel, device: int) -> tuple[Any, Any]:
    """(module, function); the function needs its module."""
    import torch
    from cuda.bindings import driver
    from cuda.core import Device, ObjectCode

    Device(device).set_current()
    code = machine_code(make, kernel, torch.cuda.get_device_capability(device))
    module = ObjectCode.from_cubin(code.cubin)
    status, function = driver.cuKernelGetFunction(driver.CUkernel(int(module.get_kernel(code.entry).handle)))
    packing.check(status)
    return module, function


@cache
def _sources() -> str:
    """The digest of the kernels' source, which their names in the disk cache hold."""
    return hashlib.sha256(Path(kernels.__file__).read_bytes()).hexdigest()

"""Launching on a GPU: one loaded kernel per device and spec, through ``cuda.core``, with everything cached that can be."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from cuda.bindings import driver
from cuda.core import Device, Kernel, LaunchConfig, ObjectCode, Stream, launch

from .compile import Spec, machine_code
from .tuning import Target

_LOADED: dict[tuple[int, Spec], tuple[ObjectCode, Kernel]] = {}
_LOADING = threading.Lock()
_STREAMS: dict[int, Stream] = {}


@cache
def device_count() -> int:
    """How many CUDA devices this process can use; 0 without a driver."""
    try:
        if driver.cuInit(0)[0] != driver.CUresult.CUDA_SUCCESS:
            return 0
        error, count = driver.cuDeviceGetCount()
    except RuntimeError:  # no libcuda
        return 0
    return count if error == driver.CUresult.CUDA_SUCCESS else 0


@cache
def target(device: int) -> Target:
    """What kernels for ``device`` may use."""
    properties = Device(device).properties
    major, minor = Device(device).compute_capability
    return Target(
        name=f"sm_{major}{minor}",
        shared_bytes=properties.max_shared_memory_per_block_optin,
        processors=properties.multiprocessor_count,
        clusters=major >= 9,
        pdl=major >= 9,
    )


def load(device: int, spec: Spec, shared_bytes: int) -> Kernel:
    """The kernel of ``spec`` on ``device``, with leave to use ``shared_bytes`` of dynamic shared memory."""
    with _LOADING:
        loaded = _LOADED.get((device, spec))
        if loaded is None:
            code = machine_code(spec, tuple(Device(device).compute_capability))
            with current_device(device):
                module = ObjectCode.from_cubin(code.cubin)
                loaded = _LOADED[device, spec] = (module, module.get_kernel(code.entry))
    kernel = loaded[1]
    if shared_bytes > 48 * 1024 - 1024:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _check(
            driver.cuKernelSetAttribute(
                attribute, shared_bytes, driver.CUkernel(int(kernel.handle)), driver.CUdevice(device)
            )
        )
    return kernel


def _check(result: tuple[Any, ...]) -> None:
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the CUDA driver answered {result[0]!r}")


def stream_of(handle: int) -> Stream:
    """``cuda.core``'s stream for a raw handle; wrapping one costs microseconds, so each is wrapped once."""
    stream = _STREAMS.get(handle)
    if stream is None:
        stream = _STREAMS[handle] = Stream.from_handle(handle)
    return stream


def config(grid: tuple[int, int, int], threads: int, shared_bytes: int, *, pdl: bool, cluster: int = 1) -> LaunchConfig:
    """A launch configuration; build it once and keep it."""
    options: dict[str, Any] = {}
    if pdl:
        options["programmatic_stream_serialization"] = True
    if cluster > 1:
        # LaunchConfig counts the grid in clusters.
        options["cluster"] = (cluster, 1, 1)
        grid = (grid[0] // cluster, *grid[1:])
    return LaunchConfig(grid=grid, block=(threads, 1, 1), shmem_size=shared_bytes, **options)


class current_device:
    """Make ``device`` current for a block of code, then restore what was current."""

    def __init__(self, device: int) -> None:
        self.device = device

    def __enter__(self) -> None:
        driver.cuCtxPushCurrent(_primary_context(self.device))

    def __exit__(self, *_: object) -> None:
        driver.cuCtxPopCurrent()


@cache
def _primary_context(device: int) -> Any:
    driver.cuInit(0)
    error, context = driver.cuDevicePrimaryCtxRetain(driver.CUdevice(device))
    _check((error,))
    return context


def run(device: int, stream: int, how: LaunchConfig, kernel: Kernel, args: tuple[int, ...]) -> None:
    """Launch on ``device`` and ``stream``; the caller's current device stays current."""
    with current_device(device):
        launch(stream_of(stream), how, kernel, *args)


__all__ = [
    "LaunchConfig",
    "Stream",
    "config",
    "current_device",
    "device_count",
    "launch",
    "load",
    "run",
    "stream_of",
    "target",
]

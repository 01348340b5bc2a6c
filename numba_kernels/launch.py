"""Launching on a GPU: one loaded kernel per device and spec, through ``cuda.core``, with everything cached that can be."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from cuda.bindings import driver
from cuda.core import Device, Kernel, LaunchConfig, ObjectCode, Stream, launch
from cuda.core._utils.cuda_utils import CUDAError

from .compile import Spec, machine_code
from .plans import Plan
from .rmsnorm import NormSpec
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
            driver.cuKernelSetAttribute(attribute, shared_bytes, driver.CUkernel(int(kernel.handle)), driver.CUdevice(device))
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


def _is_current(device: int) -> bool:
    """Whether ``device`` is the calling thread's current one; with a single device, a thread without a context counts as on it."""
    if device_count() == 1:
        return True
    error, context = driver.cuCtxGetCurrent()
    return error == driver.CUresult.CUDA_SUCCESS and int(context) == int(_primary_context(device))


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


class Prepared:
    """A plan on one device: the kernels for the alignments met so far, ready to launch.

    ``constants`` are a launch's arguments after the addresses. Two threads that meet a new alignment together build it twice
    and keep one: the same code.
    """

    __slots__ = ("_constants", "_device", "_pdl", "_plan", "_variants")

    def __init__(self, plan: Plan, device: int, enable_pdl: bool | None) -> None:
        self._plan, self._device = plan, device
        self._pdl = enable_pdl is not False and target(device).pdl
        self._constants = plan.arguments(())
        self._variants: dict[int, tuple[LaunchConfig, Kernel]] = {}

    def launch(self, addresses: tuple[int, ...], alignment: int, stream: int) -> None:
        """Launch on the stream with handle ``stream``; ``alignment`` is a key that tells the addresses' alignments apart."""
        variant = self._variants.get(alignment)
        if variant is None:
            variant = self._variants[alignment] = self._build(addresses)
        if _is_current(self._device):
            try:
                launch(stream_of(stream), *variant, *addresses, *self._constants)
                return
            except CUDAError as error:
                if "INVALID_CONTEXT" not in str(error):  # a thread that has not used CUDA yet has no context
                    raise
        with current_device(self._device):
            launch(stream_of(stream), *variant, *addresses, *self._constants)

    def _build(self, addresses: tuple[int, ...]) -> tuple[LaunchConfig, Kernel]:
        spec = self._plan.spec(target(self._device), addresses, self._pdl)
        grid, shared = self._plan.shape(spec)
        options: dict[str, Any] = {"programmatic_stream_serialization": True} if spec.pdl else {}
        if isinstance(spec, NormSpec) and spec.cluster > 1:
            options["cluster"] = (spec.cluster, 1, 1)
            grid = (grid[0] // spec.cluster, *grid[1:])  # LaunchConfig counts the grid in clusters
        how = LaunchConfig(grid=grid, block=(spec.threads, 1, 1), shmem_size=shared, **options)
        return how, load(self._device, spec, shared)


def alignment_of(addresses: tuple[int, ...]) -> int:
    """Four bits for each address: its place within 16 bytes."""
    low = 0
    for address in addresses:
        low = low << 4 | address & 15
    return low

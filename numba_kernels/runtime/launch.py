"""Launching on a GPU: one loaded function for each device and kernel, and its arguments packed once (see packing.py)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from cuda.bindings import driver

from ..backend.machine_code import Compiled, machine_code
from ..kernels.config import Config, Kernel
from ..plans import NormPlan, Plan
from ..tuning import Target
from . import launcher, packing
from .counters import counter_for
from .packing import check

PORTABLE_CLUSTER = 8  # blocks of the largest cluster that needs no permission
INVALID_CONTEXT = int(driver.CUresult.CUDA_ERROR_INVALID_CONTEXT)
_LOADED: dict[tuple[int, Kernel], int] = {}
_LOADING = threading.Lock()


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
    shared_bytes, processors = _attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"), _attribute(device, "MULTIPROCESSOR_COUNT")
    return Target.of(capability(device), shared_bytes, processors)


def capability(device: int) -> tuple[int, int]:
    """Its compute capability."""
    return _attribute(device, "COMPUTE_CAPABILITY_MAJOR"), _attribute(device, "COMPUTE_CAPABILITY_MINOR")


@cache
def _attribute(device: int, name: str) -> int:
    driver.cuInit(0)
    attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    status, value = driver.cuDeviceGetAttribute(attribute, driver.CUdevice(device))
    check(status)
    return value


def load(device: int, kernel: Kernel) -> int:
    """The handle of ``kernel``'s function on ``device``."""
    with _LOADING:
        loaded = _LOADED.get((device, kernel))
        if loaded is None:
            code = machine_code(kernel, capability(device))
            with current_device(device):
                function = _function(code)
                _permit(device, function, kernel.config)
            loaded = _LOADED[device, kernel] = int(function)
    return loaded


def _function(code: Compiled) -> Any:
    """The entry of a cubin, which stays loaded. A context's own function: it launches 0.4 µs faster than the kernel that stands
    for it in every context.
    """
    status, library = driver.cuLibraryLoadData(code.cubin, [], [], 0, [], [], 0)
    check(status)
    status, kernel = driver.cuLibraryGetKernel(library, code.entry.encode())
    check(status)
    status, function = driver.cuKernelGetFunction(kernel)
    check(status)
    return function


def _permit(device: int, function: Any, config: Config) -> None:
    """Allow ``function`` what a launch may ask for: all the shared memory of a block, a cluster of more than 8."""
    attributes = driver.CUfunction_attribute
    if config.has_dynamic_shared:
        status, static = driver.cuFuncGetAttribute(attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
        check(status)
        most = target(device).shared_bytes - static
        check(driver.cuFuncSetAttribute(function, attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)[0])
    if config.cluster > PORTABLE_CLUSTER:
        check(driver.cuFuncSetAttribute(function, attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)[0])


def resident_grid(device: int, function: int, config: Config, rows: int, shared: int) -> tuple[int, int, int]:
    """A cluster for each row, or as many as ``device`` holds at once if that is less; none if it can't hold one.

    The driver is asked: its groups of multiprocessors are uneven (an H200 holds 14 clusters of 16 blocks where two share one of
    its 132), and a cluster that had to wait for another's end would double the launch's time.
    """
    with current_device(device):
        launch = packing.launch_config((config.cluster, 1, 1), config.threads, shared, cluster=config.cluster)
        status, count = driver.cuOccupancyMaxActiveClusters(driver.CUfunction(function), launch)
    if status == driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE:
        return (0, 1, 1)
    check(status)
    return (min(rows, count) * config.cluster, 1, 1)


def _is_current(device: int) -> bool:
    """Whether ``device`` is the calling thread's current one."""
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
    check(error)
    return context


class Prepared:
    """A plan on one device: the kernels for the alignments met so far, ready to launch.

    Two threads that meet a new alignment together build it twice and keep one: the same code.
    """

    __slots__ = ("_device", "_enter", "_only_device", "_pdl", "_plan", "_variants")

    def __init__(self, plan: Plan, device: int, enable_pdl: bool | None) -> None:
        self._plan, self._device = plan, device
        self._pdl = enable_pdl is not False and target(device).pdl
        self._enter = launcher.entry(4 if isinstance(plan, NormPlan) else 2)
        self._only_device = device_count() == 1
        self._variants: dict[int, _AnyVariant] = {}

    def launch(self, addresses: tuple[int, ...], alignment: int, stream: int) -> None:
        """Launch on the stream with handle ``stream``; ``alignment`` is a key that tells the addresses' alignments apart."""
        variant = self._variants.get(alignment)
        if variant is None:
            variant = self._variants[alignment] = self._build(addresses, target(self._device))
        packed = variant.packed
        if not packed:
            assert isinstance(variant, _PersistentVariant)
            with current_device(self._device):
                packed = variant.packed_for(stream)
        if self._only_device or _is_current(self._device):
            status = self._enter(packed, stream, *addresses)
            if status == 0:
                return
            if status != INVALID_CONTEXT:  # a thread that has not used CUDA yet has no context
                check(status)
        with current_device(self._device):
            status = self._enter(packed, stream, *addresses)
        if status != 0:
            check(status)

    def _build(self, addresses: tuple[int, ...], target: Target) -> _AnyVariant:
        plan = self._plan
        kernel = plan.kernel(target, addresses, self._pdl)
        grid, shared = plan.shape(kernel)
        function, config = load(self._device, kernel), kernel.config
        resident = resident_grid(self._device, function, config, plan.rows, shared) if config.cluster > 1 else grid
        if resident[0] == 0:
            if plan.config is not None:
                blocks = f"{config.cluster} blocks of {config.threads} threads"
                raise RuntimeError(f"device {self._device} holds no cluster of {blocks}")
            return self._build(addresses, replace(target, clusters=target.clusters // 2))
        if isinstance(plan, NormPlan) and config.persistent:
            grid = resident
            launch = packing.launch_config(grid, config.threads, shared, pdl=config.pdl, cluster=config.cluster)
            return _PersistentVariant(
                lambda counter: packing.pack_arguments(launch, function, plan.arguments((), counter)),
                lambda: self._build(addresses, replace(target, clusters=1)),
            )
        launch = packing.launch_config(grid, config.threads, shared, pdl=config.pdl, cluster=config.cluster)
        packed = packing.pack_arguments(launch, function, plan.arguments(()))
        return _Variant(packed.ctypes.data, (launch, packed))


@dataclass(frozen=True, slots=True)
class _Variant:
    """The address of packed arguments, and what must live as long as they."""

    packed: int
    keeps: tuple[Any, ...]


class _PersistentVariant:
    """Of a persistent kernel: packed arguments for each tile counter, and another variant for when no counter is left."""

    packed = 0

    def __init__(self, pack: Callable[[int], np.ndarray], make_other: Callable[[], _AnyVariant]) -> None:
        self._pack, self._make_other = pack, make_other
        self._packed: dict[int, np.ndarray] = {}
        self._other: _AnyVariant | None = None
        self._making = threading.Lock()

    def packed_for(self, stream: int) -> int:
        """The address of the packed arguments for a launch on this stream of the current device."""
        counter = counter_for(stream)
        if counter is None:
            with self._making:  # made once: the address outlives no other
                self._other = self._other or self._make_other()
            return self._other.packed
        packed = self._packed.get(counter)
        if packed is None:
            packed = self._packed.setdefault(counter, self._pack(counter))
        return packed.ctypes.data


_AnyVariant = _Variant | _PersistentVariant


def alignment_of(addresses: tuple[int, ...]) -> int:
    """Four bits for each address: its place within 16 bytes."""
    low = 0
    for address in addresses:
        low = low << 4 | address & 15
    return low

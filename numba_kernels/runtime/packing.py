"""What a launch reads: a launch configuration and a kernel's constant parameters, packed once for all launches of a kind.

Everything that lives longer than a call belongs to the caller.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from cuda.bindings import driver

CONFIG_WORDS = 7  # CUlaunchConfig: 56 bytes, of which bytes 32 to 39 are the stream
STREAM_WORD = 4
ENTRY, FUNCTION, CONFIG, CONSTANTS = 0, 1, 2, 2 + CONFIG_WORDS  # words of the packed arguments
MOST_CONSTANTS = 9  # after the addresses; a kernel that takes fewer does not read the rest


def check(status: int) -> None:
    """Raise where the driver's answer is not success."""
    if status != 0:
        raise RuntimeError(f"the CUDA driver refused: {driver.CUresult(status).name}")


@cache
def driver_entry() -> int:
    """The address of ``cuLaunchKernelEx``."""
    library = ctypes.CDLL("libcuda.so.1")
    return ctypes.cast(library.cuLaunchKernelEx, ctypes.c_void_p).value or 0


def launch_config(grid: tuple[int, int, int], threads: int, shared_bytes: int, *, pdl: bool = False, cluster: int = 1) -> Any:
    """A ``CUlaunchConfig``; the grid counts blocks, also where ``cluster`` of them share a row."""
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared_bytes
    attributes = []
    if pdl:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    if cluster > 1:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster, 1, 1
        attributes.append(attribute)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def pack_arguments(config: Any, function: int, constants: tuple[int, ...]) -> np.ndarray:
    """What a launch reads: the driver's entry, the kernel, a copy of the configuration, and the constant parameters.

    ``config`` must outlive it (its attributes are not copied).
    """
    template = (ctypes.c_int64 * CONFIG_WORDS).from_address(config.getPtr())
    unread = (0,) * (MOST_CONSTANTS - len(constants))
    return np.array([driver_entry(), function, *template, *constants, *unread], np.int64)

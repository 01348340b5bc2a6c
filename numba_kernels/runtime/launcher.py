"""A launch in one step from Python: compiled code fills the driver's structures on its own stack and calls ``cuLaunchKernelEx``.

On an H200's host this takes 3.5 µs, driver included, where ``cuda.core.launch`` with ten parameters takes 4.4.
No buffer is shared between calls, so it is safe from any number of threads. Everything that lives longer than a call (the launch
configuration, the kernel) belongs to the caller.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from cuda.bindings import driver
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

CONFIG_WORDS = 7  # CUlaunchConfig: 56 bytes, of which bytes 32 to 39 are the stream
STREAM_WORD = 4
ENTRY, FUNCTION, CONFIG, CONSTANTS = 0, 1, 2, 2 + CONFIG_WORDS  # words of the packed arguments
NORM_CONSTANTS, GATED_CONSTANTS = 9, 6  # after the addresses; a kernel that takes fewer does not read the rest
I32, I64 = ir.IntType(32), ir.IntType(64)
BYTES = ir.IntType(8).as_pointer()


def _make_launch(addresses: int, constants: int):
    """``launch(packed, stream, *addresses) -> status``. Each address and constant is one 8-byte kernel parameter."""
    parameters = addresses + constants

    @intrinsic
    def enter_driver(typingctx, packed, stream, given):
        def codegen(context, builder, sig, args):
            words = builder.inttoptr(args[0], I64.as_pointer())

            def word(k):
                return builder.load(builder.gep(words, [I32(k)]))

            config = builder.alloca(ir.ArrayType(I64, CONFIG_WORDS))
            for k in range(CONFIG_WORDS):
                value = args[1] if k == STREAM_WORD else word(CONFIG + k)
                builder.store(value, builder.gep(config, [I32(0), I32(k)]))
            values = builder.alloca(ir.ArrayType(I64, parameters))
            pointers = builder.alloca(ir.ArrayType(BYTES, parameters))
            for k in range(parameters):
                value = builder.extract_value(args[2], k) if k < addresses else word(CONSTANTS + k - addresses)
                place = builder.gep(values, [I32(0), I32(k)])
                builder.store(value, place)
                builder.store(builder.bitcast(place, BYTES), builder.gep(pointers, [I32(0), I32(k)]))
            entry = builder.inttoptr(word(ENTRY), ir.FunctionType(I32, [BYTES] * 4).as_pointer())
            function = builder.inttoptr(word(FUNCTION), BYTES)
            nothing = ir.Constant(BYTES, None)
            return builder.call(entry, [builder.bitcast(config, BYTES), function, builder.bitcast(pointers, BYTES), nothing])

        return types.int32(types.int64, types.int64, types.UniTuple(types.int64, addresses)), codegen

    return enter_driver


_enter_norm, _enter_gated = _make_launch(4, NORM_CONSTANTS), _make_launch(2, GATED_CONSTANTS)


@njit("int32(int64, int64, int64, int64, int64, int64)", cache=True)
def launch_norm(packed, stream, x, residual, weight, out):
    return _enter_norm(packed, stream, (x, residual, weight, out))


@njit("int32(int64, int64, int64, int64)", cache=True)
def launch_gated(packed, stream, x, out):
    return _enter_gated(packed, stream, (x, out))


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
    unread = (0,) * (NORM_CONSTANTS - len(constants))
    return np.array([driver_entry(), function, *template, *constants, *unread], np.int64)

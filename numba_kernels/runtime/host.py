"""Host arrays: on the CPU emulator, or on the GPU with copies there and back."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np

from .. import tuning
from ..backend.compile import kernel_function
from ..emulator import EmulatedKernel
from ..formats import FORMATS
from ..kernels.config import Kernel
from ..plans import Plan
from .arrays import Rows


def emulates() -> bool:
    """Whether host arrays run on the CPU emulator: where there is no GPU, or ``NUMBA_KERNELS_DEVICE=cpu`` asks for it."""
    if os.environ.get("NUMBA_KERNELS_DEVICE") == "cpu":
        return True
    from .launch import device_count

    return device_count() == 0


@cache
def _emulated(kernel: Kernel) -> EmulatedKernel:
    return EmulatedKernel(kernel_function(kernel), accepted=True)


def emulate(plan: Plan, rows: tuple[Rows, ...]) -> None:
    """Run ``plan`` on the CPU emulator, in the caller's own memory."""
    kernel = plan.kernel(tuning.EMULATOR, (0,) * len(rows), False)  # the widest access: a CPU takes any address
    grid, shared = plan.shape(kernel)
    arguments = plan.arguments(tuple(_words(r) for r in rows))
    _emulated(kernel).launch(grid=grid, block=kernel.config.threads, args=arguments, dynamic_shared_bytes=shared)


def stage(plan: Plan, rows: tuple[Rows, ...], written: tuple[bool, ...], enable_pdl: bool | None) -> None:
    """Run ``plan`` on the current GPU: each array copied there, and what the operator writes copied back into place."""
    from numba import cuda

    from .launch import Prepared, alignment_of

    copies: dict[tuple[int, int], Any] = {}
    for view in rows:
        key = (view.array.address, view.extent)
        if key not in copies:
            copies[key] = cuda.to_device(_words(view))
    used = [copies[view.array.address, view.extent] for view in rows]
    addresses = tuple(copy.__cuda_array_interface__["data"][0] for copy in used)
    Prepared(plan, cuda.get_current_device().id, enable_pdl).launch(addresses, alignment_of(addresses), 0)
    for view, copy, writes in zip(rows, used, written, strict=True):
        if writes:
            put_rows(view, copy.copy_to_host())


def put_rows(rows: Rows, words: np.ndarray) -> None:
    """Copy the rows in ``words``, laid out as ``rows``, into place; what lies between two rows is somebody else's."""
    size = words.itemsize
    shape, strides = (rows.count, rows.width), (rows.stride * size, size)
    as_strided = np.lib.stride_tricks.as_strided
    as_strided(_words(rows), shape, strides)[...] = as_strided(words, shape, strides, writeable=False)


def _words(rows: Rows) -> np.ndarray:
    """The memory from a view's first element to its last, as the words that hold its elements' bits."""
    kind = np.ctypeslib.as_ctypes_type(np.dtype(FORMATS[rows.array.format].word))
    return np.ctypeslib.as_array((kind * rows.extent).from_address(rows.array.address))

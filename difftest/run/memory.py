"""Where the tensors of a call lie: in memory of their own, or in memory that two processes see."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any

import torch

ALIGNMENT = 512  # bytes: CUDA's allocator's, and a multiple of what torch's has on a CPU
LEAST = 1 << 22  # bytes of a half
SPARSE = 1 << 32  # bytes: no call has so much but of rows far apart
SPARE = 2  # times what a call needs, so that few calls ask for more

Take = Callable[[int, torch.dtype], torch.Tensor]
"""Gives so many uninitialised elements in one dimension."""


def own(device: torch.device) -> Take:
    """Every tensor an allocation of its own. On a CPU, of gigabytes those pages alone take room that are written."""

    def take(count: int, dtype: torch.dtype) -> torch.Tensor:
        size = count * dtype.itemsize
        if device.type != "cpu" or size < SPARSE or not shareable():
            return torch.empty(count, dtype=dtype, device=device)
        file = _nameless(size)
        try:
            return torch.frombuffer(mmap.mmap(file, size), dtype=dtype)
        finally:
            os.close(file)

    return take


class Shared:
    """Memory that this process hands out and another can be given. Two halves take turns, so a call's memory is not the last's.

    On a CPU it is a file without a name, which nobody can make smaller; on a GPU an allocation that CUDA IPC opens elsewhere.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._half = 0
        self._turn = 0
        self._used = 0
        self._mapped: mmap.mmap | None = None
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self.generation = 0  # of the memory: it is another where more was needed
        self.file: int | None = None  # its descriptor, on a CPU
        self._counted: tuple[Any, Any] | None = None  # where torch counts that another process has the GPU's memory open

    def begin(self, needed: int) -> None:
        """Starts a call that takes so many bytes at most: what was handed out two calls ago is handed out again."""
        if needed > self._half:
            self._half = max(LEAST, -(-SPARE * needed // mmap.PAGESIZE) * mmap.PAGESIZE)
            self._renew(2 * self._half)
        self._turn = 1 - self._turn
        self._used = self._turn * self._half

    def take(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A `Take`."""
        size, start = count * dtype.itemsize, self._used
        if start + size > (self._turn + 1) * self._half:
            raise RuntimeError(f"a call needs {size} bytes more than was asked for")
        self._used = -(-(start + size) // ALIGNMENT) * ALIGNMENT
        if self._mapped is not None and count:
            return torch.frombuffer(self._mapped, dtype=dtype, count=count, offset=start)
        return self._bytes[start : start + size].view(dtype)

    def offset(self, taken: torch.Tensor) -> int:
        """Where a tensor that was taken begins, in bytes."""
        return taken.data_ptr() - self._bytes.data_ptr()

    def opening(self) -> Any:
        """What `Opened` opens it by, beside the descriptor on a CPU; plain data."""
        if self.file is not None:
            return len(self._bytes)
        shared = self._bytes.untyped_storage()._share_cuda_()
        self._counted = shared[4], shared[5]  # as torch.multiprocessing.reductions names them: the counter's handle and offset
        return shared

    def settle(self) -> None:
        """Waits until what this process has begun to write is there: nothing on a GPU orders two processes' work."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def gone(self) -> None:
        """The process that was given the memory ended without letting go of it. On a GPU torch would keep it until it did."""
        if self._counted:
            torch.UntypedStorage._release_ipc_counter(*self._counted, device=self._device)  # type: ignore[attr-defined]
            self._counted = None

    def _renew(self, size: int) -> None:
        self.generation += 1
        if self._device.type != "cpu":
            self._bytes = torch.empty(size, dtype=torch.uint8, device=self._device)
            return
        self.close()
        self.file = _nameless(size)
        self._mapped = mmap.mmap(self.file, size)
        self._bytes = torch.frombuffer(self._mapped, dtype=torch.uint8)

    def close(self) -> None:
        """Closes the descriptor; the memory lasts as long as tensors of it."""
        self._bytes = torch.empty(0, dtype=torch.uint8)
        if self.file is not None:
            os.close(self.file)
            self.file = None


class Opened:
    """Another process's `Shared`, seen from this one."""

    def __init__(self, opening: Any, file: int | None) -> None:
        if file is not None:
            self._mapped: mmap.mmap | None = mmap.mmap(file, opening)
        else:
            self._mapped = None
            torch.cuda.init()  # which opening a handle takes for granted
            storage = torch.UntypedStorage._new_shared_cuda(*opening)
            self._bytes = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)  # type: ignore[call-overload]

    def at(self, offset: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        """So many elements, at least one, from a byte on; on a CPU as a storage of their own, which leads to nothing beside."""
        if self._mapped is not None:
            return torch.frombuffer(self._mapped, dtype=dtype, count=count, offset=offset)
        return self._bytes[offset : offset + count * dtype.itemsize].view(dtype)


def shareable() -> bool:
    """Whether this system has what `Shared` needs on a CPU, and processes that are forked."""
    return hasattr(os, "memfd_create") and hasattr(os, "fork")


def _nameless(size: int) -> int:
    """A file of that size in memory alone, sealed against becoming shorter: that would end whoever reads it by SIGBUS."""
    import fcntl  # which Windows lacks

    file = os.memfd_create("difftest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except BaseException:
        os.close(file)
        raise
    return file

"""What an unmodified program asks of the driver: streams, events, a device, its context. Work is done when a call returns."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any


class Stream:
    """All work is done when a call returns, so there is nothing to wait for."""

    handle = 0

    def synchronize(self) -> None:
        pass

    @contextlib.contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        yield self

    def add_callback(self, callback: Callable[..., Any], arg: Any = None) -> None:
        callback(self, 0, arg)

    def wait(self, *_: Any) -> None:
        pass

    def __bool__(self) -> bool:
        return True


class Event:
    """A moment on the host's clock."""

    def __init__(self, timing: bool = True) -> None:
        self.at = 0.0

    def record(self, stream: Any = 0) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def wait(self, stream: Any = 0) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds from this event to another."""
        return (other.at - self.at) * 1e3


class Device:
    """An H200, as far as programs ask."""

    id, name, compute_capability = 0, b"numba_kernels.emulator", (9, 0)
    MAX_THREADS_PER_BLOCK, MAX_SHARED_MEMORY_PER_BLOCK, MULTIPROCESSOR_COUNT, WARP_SIZE = 1024, 49152, 132, 32
    MAX_GRID_DIM_X, MAX_GRID_DIM_Y, MAX_GRID_DIM_Z = 2**31 - 1, 65535, 65535
    MAX_BLOCK_DIM_X, MAX_BLOCK_DIM_Y, MAX_BLOCK_DIM_Z = 1024, 1024, 64
    supports_float16, supports_bfloat16 = True, True

    def reset(self) -> None:
        pass


class Context:
    device = Device()

    def synchronize(self) -> None:
        pass

    def reset(self) -> None:
        pass

    def get_memory_info(self) -> tuple[int, int]:
        return 2**37, 2**37

"""The clock: calls captured in a CUDA graph, launched between events with a cold, clean L2.

`Timer` is what the rest of the benchmark needs of it, so that a made-up one can stand in where there is no GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

Call = Callable[[], Any]

FLUSH_BYTES = 256 * 2**20  # several times the L2 of any card yet (60 MB on an H200, 126 MB on a B200)
# The stream is held back this long, about 0.3 ms, before the first event, while the host queues the launch: launching a graph
# of 200 nodes may take it 0.1 ms, and an event that fired before that would count it.
HOLD_CYCLES = 600_000


class Captured(Protocol):
    """Calls that can be run again at once, and what they returned: buffers that each launch writes anew."""

    outputs: list[Any]


class Timer(Protocol):
    """What measures."""

    def warm(self, calls: Sequence[Call]) -> None:
        """Runs the calls a few times, so that whatever compiles on first use has compiled."""

    def capture(self, calls: Sequence[Call]) -> Captured:
        """The calls as one unit of work, run once already."""

    def launch(self, captured: Captured, refresh: Callable[[], None]) -> None:
        """Runs the unit once on refreshed buffers, and waits for it."""

    def turn(self, captured: Captured, launches: int, refresh: Callable[[], None]) -> list[float]:
        """Seconds on the device of each of `launches` runs of the unit, with `refresh`, and a flush if any, before each."""

    def wake(self) -> None:
        """Brings the clocks up after a time without work."""

    def synchronize(self) -> None:
        """Waits for the device; raises when it is lost."""

    def free_bytes(self) -> int:
        """Free memory."""

    def release(self) -> None:
        """Gives back memory that nothing refers to any more."""


class _Graph:
    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: list[Any]) -> None:
        self.graph = graph
        self.outputs = outputs


class GraphTimer:
    """CUDA graphs and events on one device. `cold`: with the L2 written over and read clean before each launch."""

    def __init__(self, device: torch.device, *, cold: bool = True) -> None:
        self.device, self.cold = device, cold
        self._written = torch.empty(FLUSH_BYTES // 4, dtype=torch.float32, device=device)
        self._read = torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device=device)
        self._sink = torch.empty((), dtype=torch.float32, device=device)

    def warm(self, calls: Sequence[Call]) -> None:
        """Three runs on a stream of their own, as capturing needs."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                for call in calls:
                    call()
        torch.cuda.synchronize(self.device)

    def capture(self, calls: Sequence[Call]) -> Captured:
        """One graph. What the calls return is kept, so that no call's output takes the place of another's."""
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(self.device)
        failure: BaseException | None = None
        outputs: list[Any] = []
        try:
            # thread_local: a library's background thread may allocate meanwhile
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                try:
                    outputs += [call() for call in calls]
                except BaseException as error:
                    failure = error
                    raise
        except BaseException as error:
            # A capture that was left early fails once more at its end, which would hide what happened, Ctrl-C too.
            raise failure or error from None
        graph.replay()
        torch.cuda.synchronize(self.device)
        return _Graph(graph, outputs)

    def launch(self, captured: Captured, refresh: Callable[[], None]) -> None:
        """One launch, not timed."""
        assert isinstance(captured, _Graph)
        refresh()
        captured.graph.replay()
        torch.cuda.synchronize(self.device)

    def turn(self, captured: Captured, launches: int, refresh: Callable[[], None]) -> list[float]:
        """Event to event around each launch."""
        assert isinstance(captured, _Graph)
        events = []
        for _ in range(launches):
            refresh()
            if self.cold:
                self._flush()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(HOLD_CYCLES)
            start.record()
            captured.graph.replay()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize(self.device)
        return [start.elapsed_time(end) / 1e3 for start, end in events]

    def wake(self) -> None:
        """A twentieth of a second of memory traffic."""
        until = time.perf_counter() + 0.05
        while time.perf_counter() < until:
            self._flush()
            torch.cuda.synchronize(self.device)

    def synchronize(self) -> None:
        """Waits; an error that stuck to the CUDA context shows here."""
        torch.cuda.synchronize(self.device)

    def free_bytes(self) -> int:
        """As the driver says, with what torch's allocator holds without using it."""
        free, _ = torch.cuda.mem_get_info(self.device)
        return free + torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)

    def release(self) -> None:
        """Empties torch's cache."""
        torch.cuda.empty_cache()

    def _flush(self) -> None:
        """Writes over the L2, then reads it clean: lines still to be written back would be charged to the next kernels."""
        self._written.fill_(1.0)
        torch.sum(self._read, dim=0, out=self._sink)

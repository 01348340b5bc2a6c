"""The host's time for one call: a Python loop over the public function, checks included, synchronised at its ends only."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from difftest.bench import shapes
from difftest.bench.buffers import BufferSets
from difftest.bench.measure import first_line, native_call, skipped
from difftest.bench.shapes import OURS, head
from difftest.bench.timer import Timer
from difftest.cases.case import Case
from reference.providers import Provider

LOOP = 400  # calls: below the 1024 launches that a stream queues, so that the host never waits for the device
LOOPS = 9

# Where the function that a user imports is, for those whose provider puts checks or a view of its own around it.
_PUBLIC = {OURS: "numba_kernels", "flashinfer": "flashinfer", "triton": "reference.providers.triton_kernels"}


def host(case: Case, providers: Sequence[Provider], timer: Timer, device: torch.device) -> dict[str, Any]:
    """Microseconds of the host for a call of each provider, in turns; the fastest loop and the median one."""
    rows: list[dict[str, Any]] = []
    loops: dict[str, tuple[Callable[[], None], list[float]]] = {}
    sets = BufferSets(case, 1, device)
    sets.refresh()
    arguments = sets.arguments(0)
    for provider in providers:
        try:
            if provider.claims(case.op) is None:  # no row for what does not have the operator
                continue
            reason = provider.check(case)
            if reason:
                rows.append(skipped(provider.name, reason))
                continue
            function = public(provider, case.op)
            for _ in range(3):
                function(*arguments)
            timer.synchronize()
            loops[provider.name] = (_loop(function, arguments), [])
        except Exception as error:  # a foreign library may raise anything
            rows.append(skipped(provider.name, first_line(error)))
    collecting = gc.isenabled()
    gc.disable()  # as timeit does
    try:
        for order in shapes.turns(list(loops), LOOPS):
            for name in order:
                loop, seconds = loops[name]
                timer.synchronize()
                start = time.perf_counter()
                loop()
                seconds.append((time.perf_counter() - start) / LOOP)
        timer.synchronize()
    finally:
        if collecting:
            gc.enable()
    for name, (_, seconds) in loops.items():
        best, median = (round(1e6 * each, 3) for each in (min(seconds), statistics.median(seconds)))
        rows.append({"provider": name, "status": "ok", "us": {"best": best, "median": median, "samples": len(seconds)}})
    return {**head(case), "results": rows}


def public(provider: Provider, op: str) -> Callable:
    """The function of `op` that a user of the library calls."""
    module = _PUBLIC.get(provider.name)
    return getattr(import_module(module), op) if module else native_call(provider, op)


def _loop(function: Callable, arguments: Sequence[Any]) -> Callable[[], None]:
    def loop() -> None:
        for _ in range(LOOP):
            function(*arguments)

    return loop

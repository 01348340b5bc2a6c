"""A whole run: point after point, the document saved after each, whatever stops it."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch

from difftest import interrupts
from difftest.bench import measure, shapes, timer
from difftest.bench.buffers import CopyPairs
from difftest.bench.host import host
from difftest.bench.timer import Timer
from difftest.cases.case import Case
from reference.operators.declaration import DEFAULT_EPS
from reference.providers import Provider

SCHEMA = "numba-kernels/bench/2"
PARTS = ("points", "host")  # of the document: lists with an entry a measurement
CARD_COPY_BYTES = 2**32  # read and written; large beside any L2

METHOD = (
    "CUDA graph of N calls over N prepared buffer sets; before each launch, outside the events, every set gets its first "
    "values again and the L2 is written over, then read clean; providers and two ways to copy the same bytes take turns; median "
    "of the samples; GB/s from the fused form's bytes, the weight once a launch; results checked after timing."
)


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure, with whom, until when."""

    cases: Sequence[Case]
    providers: Sequence[Provider]
    device: torch.device
    named: bool = False  # whether the peers were named, rather than the default
    time_budget: float | None = None  # seconds


Save = Callable[[Mapping[str, Any]], None]


def run(
    what: Request,
    clock: Timer,
    about: Mapping[str, Any],
    save: Save = lambda document: None,
    on_point: Callable[[Case, Mapping[str, Any]], None] = lambda case, result: None,
) -> dict[str, Any]:
    """Measures every point that the time allows, and returns the document. Ctrl-C, and a lost device, end it early.

    `about` is what the document begins with; `save` gets the document after each point and at the end.
    """
    start = time.monotonic()
    document: dict[str, Any] = {
        **about,
        "complete": False,
        "stopped": None,
        "seconds": 0.0,
        "method": {
            "timer": METHOD,
            "rounds": measure.ROUNDS,
            "launches": measure.LAUNCHES,
            "most_calls": shapes.MOST_CALLS,
            "flush_bytes": timer.FLUSH_BYTES,
            "eps": DEFAULT_EPS,
        },
        "card_copy": None,
        "points": [],
        "host": [],
        "not_run": [str(case) for case in what.cases],
    }

    def keep() -> None:
        document["seconds"] = round(time.monotonic() - start, 2)
        save(document)

    try:
        with interrupts.on_sigterm_too(), torch.no_grad():
            _measure(what, clock, document, start, keep, on_point)
    except KeyboardInterrupt:
        document["stopped"] = "interrupted"
    except measure.DeviceLost as error:
        document["stopped"] = str(error)
    except Exception as error:
        document["stopped"] = measure.first_line(error)
        keep()
        raise
    document["complete"] = not document["not_run"]
    keep()
    return document


def _measure(
    what: Request,
    clock: Timer,
    document: dict[str, Any],
    start: float,
    keep: Callable[[], None],
    on_point: Callable[[Case, Mapping[str, Any]], None],
) -> None:
    document["card_copy"] = _card_copy(clock, what.device)
    keep()
    _build_ahead(what)
    smallest = shapes.smallest(what.cases)
    for case in what.cases:
        if what.time_budget is not None and time.monotonic() - start >= what.time_budget:
            document["stopped"] = "out of time"
            return
        forget(clock)
        began = time.monotonic()
        result = _point(what, case, clock)
        result["seconds"] = round(time.monotonic() - began, 2)
        document["points"].append(result)
        document["not_run"].remove(str(case))
        keep()
        on_point(case, result)
        if smallest[case.op] == case:
            document["host"].append(_host(what, case, clock))
            keep()


def _point(what: Request, case: Case, clock: Timer) -> dict[str, Any]:
    """The point's result; where it can't be measured at all (no memory, say), everyone is skipped with that reason."""
    entrants = shapes.entrants(case.op, what.providers, what.named)
    try:
        return measure.point(case, entrants, clock, what.device)
    except Exception as error:
        reason = _reason_or_lost(error, case, clock)
    skips = [measure.skipped(provider.name, reason) for provider in entrants]
    return {**shapes.head(case), "calls": 0, "copy": None, "results": skips}


def _host(what: Request, case: Case, clock: Timer) -> dict[str, Any]:
    """The point's host times, of everyone: `flashinfer` too, whose public function is what a user calls."""
    try:
        return host(case, what.providers, clock, what.device)
    except Exception as error:
        reason = _reason_or_lost(error, case, clock)
    return {**shapes.head(case), "results": [measure.skipped(p.name, reason) for p in what.providers]}


def _reason_or_lost(error: Exception, case: Case, clock: Timer) -> str:
    """An error as a reason, since one point's failure is not the run's. DeviceLost where the device is gone."""
    if isinstance(error, measure.DeviceLost):
        raise error
    reason = measure.first_line(error)
    why = measure.lost(clock)
    if why:
        raise measure.DeviceLost(f"{case}: {reason}: {why}") from error
    return reason


def _card_copy(clock: Timer, device: torch.device) -> dict[str, Any] | None:
    """This card's copy bandwidth: one copy of 2 GiB, or of what a small card allows, the faster way."""
    pairs = CopyPairs(min(CARD_COPY_BYTES, clock.free_bytes() // 4), 1, device)
    captured = {way: clock.capture(copies) for way, copies in pairs.ways.items()}
    clock.wake()
    samples = {way: clock.turn(unit, 9, pairs.refresh) for way, unit in captured.items()}
    return {"bytes": pairs.moved, **(measure.fastest_copy(samples, pairs.moved) or {})}


def forget(clock: Timer) -> None:
    """Drops the last point's graphs and memory, and what torch.compile learnt: each shape gets code of its own."""
    gc.collect()
    clock.release()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def _build_ahead(what: Request) -> None:
    """Builds FlashInfer's CUDA modules side by side: nvcc takes most of a minute for each, and waits for none of the others."""
    if what.device.type != "cuda":
        return
    runs = {(p.name, c.operator.activation) for c in what.cases for p in what.providers if p.check(c) is None}
    kinds = [kind for name, kind in runs if name == "flashinfer" and kind]
    builders: list[Callable[[], object]] = [partial(activation_module, kind) for kind in kinds]
    if ("flashinfer-cuda", None) in runs:
        builders.append(lambda: import_module("flashinfer.norm").get_norm_module())
    if len(builders) < 2:
        return
    with ThreadPoolExecutor(len(builders)) as pool:
        for future in [pool.submit(builder) for builder in builders]:
            future.exception()  # a build that fails, fails again where its provider is entered, and is listed there


def activation_module(kind: str) -> object:
    return import_module("flashinfer.activation").get_act_and_mul_module(kind)

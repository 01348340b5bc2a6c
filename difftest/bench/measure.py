"""One point: everyone captured, then timed in turns, then checked.

The result is plain data, ready for the file. A provider ends as `ok`, as `wrong` (timed, but its result fails the check),
or as `skipped`, with the reason.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from difftest.bench import check, shapes
from difftest.bench.buffers import BufferSets, CopyPairs
from difftest.bench.dependent_launch import uses_pdl
from difftest.bench.shapes import OURS, head
from difftest.bench.timer import Captured, Timer
from difftest.cases.case import Case
from difftest.run.call import collect
from reference.contracts import Contract
from reference.providers import Provider

ROUNDS = 5
LAUNCHES = 3  # a turn; with the rounds, 15 samples
LONG = 0.02  # seconds; a launch longer than this takes one a turn


class DeviceLost(RuntimeError):
    """A CUDA error stuck to the process: nothing more can be measured in it."""


@dataclass(slots=True)
class Entry:
    """What was captured, ready to be timed."""

    name: str
    captured: Captured
    refresh: Callable[[], None]
    seconds: float  # to warm up and capture
    contract: Contract | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    samples: list[float] = field(default_factory=list)  # seconds a call


def point(case: Case, providers: Sequence[Provider], timer: Timer, device: torch.device) -> dict[str, Any]:
    """Times `providers` and a copy at one point. A provider's failure becomes its row; DeviceLost where all is lost."""
    calls = shapes.calls(case, shapes.pool_bytes(timer.free_bytes(), len(providers)))
    sets = BufferSets(case, calls, device)
    sets.refresh()
    entries: list[Entry] = []
    rows: dict[str, dict[str, Any]] = {}
    for provider in providers:
        entered = _enter(provider, case, sets, timer, device)
        if isinstance(entered, Entry):
            entries.append(entered)
        else:
            rows[provider.name] = entered
    copies = enter_copies(case, calls, timer, device) if entries else []
    take_turns([*entries, *copies], calls, timer)
    copy = fastest_copy({entry.name: entry.samples for entry in copies}, case.moved)
    for entry in entries:
        row = {"provider": entry.name, **_checked(entry, case, sets, timer), **entry.facts}
        row.update(timing(entry.samples, case.moved))
        if copy:
            row["share_of_copy"] = round(row["gbps"] / copy["gbps"], 4)
        rows[entry.name] = {**row, "seconds_to_prepare": round(entry.seconds, 3)}
    return {**head(case), "calls": calls, "copy": copy, "results": [rows[provider.name] for provider in providers]}


def timing(samples: Sequence[float], moved: int) -> dict[str, Any]:
    """Seconds a call, many times over -> median, spread and GB/s (10^9 bytes of the ledger's fused form a second)."""
    microseconds = sorted(1e6 * sample for sample in samples)
    median = statistics.median(microseconds)
    return {
        "us": {
            "median": round(median, 4),
            "p10": round(_quantile(microseconds, 0.1), 4),
            "p90": round(_quantile(microseconds, 0.9), 4),
            "samples": len(microseconds),
        },
        "gbps": round(moved / median / 1e3, 2),
    }


def fastest_copy(samples: Mapping[str, Sequence[float]], moved: int) -> dict[str, Any] | None:
    """The timing of the faster way to copy, and which it was; None where none was timed."""
    if not samples:
        return None
    way = min(samples, key=lambda name: statistics.median(samples[name]))
    return {**timing(samples[way], moved), "way": way}


def skipped(name: str, reason: str) -> dict[str, Any]:
    """The row of a provider that was not timed."""
    return {"provider": name, "status": "skipped", "reason": reason}


def native_call(provider: Provider, op: str) -> Callable:
    """The provider's own form of `op`; our own without the wrapper that returns what was written in place."""
    return provider.function(op) if provider.name == OURS else provider.native(op)


def first_line(error: BaseException) -> str:
    """An error in a line of bounded length."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def lost(timer: Timer) -> str | None:
    """Why the device can't be used any more, or None."""
    try:
        timer.synchronize()
    except Exception as error:  # whatever CUDA says by now
        return first_line(error)
    return None


def raise_if_lost(timer: Timer, after: str) -> None:
    """DeviceLost, with what it came after, where the device can't be used any more."""
    why = lost(timer)
    if why:
        raise DeviceLost(f"{after}: {why}")


def _enter(provider: Provider, case: Case, sets: BufferSets, timer: Timer, device: torch.device) -> Entry | dict[str, Any]:
    start = time.perf_counter()
    try:
        reason = provider.check(case)
        if reason:
            return skipped(provider.name, reason)
        claimed = provider.claims(case.op) or case.contract
        native = native_call(provider, case.op)
        calls = [partial(native, *sets.arguments(index)) for index in range(sets.count)]
        timer.warm(calls[:2])
        captured = timer.capture(calls)
        facts = {
            "contract": claimed.code,
            "in_place": bool(provider.in_place and case.operator.mutated),
            "pdl": uses_pdl(provider.name, device),
        }
        return Entry(provider.name, captured, sets.refresh, time.perf_counter() - start, claimed, facts)
    except Exception as error:  # a foreign library may raise anything; one peer's failure is not the run's
        reason = first_line(error)
    raise_if_lost(timer, f"{case}: after {provider.name} failed with {reason}")
    gc.collect()
    timer.release()
    return skipped(provider.name, reason)


def enter_copies(case: Case, calls: int, timer: Timer, device: torch.device) -> list[Entry]:
    """Both ways to copy as many bytes as the case moves; none where memory is too small for them."""
    try:
        pairs = CopyPairs(case.moved, calls, device)
        for copies in pairs.ways.values():
            timer.warm(copies[:1])
        return [Entry(way, timer.capture(copies), pairs.refresh, 0.0) for way, copies in pairs.ways.items()]
    except RuntimeError:  # out of memory: the point is worth having without it
        return []


def take_turns(entries: Sequence[Entry], calls: int, timer: Timer, rounds: int = ROUNDS) -> None:
    """Times every entry in every round; its samples become seconds for each of the `calls` that it captured."""
    by_name = {entry.name: entry for entry in entries}
    timer.wake()
    for order in shapes.turns(list(by_name), rounds):
        for name in order:
            entry = by_name[name]
            long = bool(entry.samples) and entry.samples[0] * calls > LONG
            seconds = timer.turn(entry.captured, 1 if long else LAUNCHES, entry.refresh)
            entry.samples += [each / calls for each in seconds]


def _checked(entry: Entry, case: Case, sets: BufferSets, timer: Timer) -> dict[str, Any]:
    """Launches once more on fresh values; the first set's result and the last one's are looked at."""
    assert entry.contract is not None
    timer.launch(entry.captured, entry.refresh)
    inputs = sets.first_values()
    largest: dict[str, int] = {}
    for index in dict.fromkeys((0, sets.count - 1)):
        actual = collect(case.operator, sets.tensors(index), entry.captured.outputs[index])
        ulp, reason = check.wrong(case, inputs, actual, entry.contract)
        largest = {name: max(value, largest.get(name, 0)) for name, value in ulp.items()}
        if reason:
            return {"status": "wrong", "reason": f"call {index}: {reason}", "max_ulp": largest}
    return {"status": "ok", "max_ulp": largest}


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between the two samples beside the place."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])

"""What a call can't go below: beside a kernel of ours the same launch with nothing in it, and the same bytes moved without a sum.

Of a small call both are launched as the kernel is, with the grid, block, cluster and dependent launch that tuning chose. The
bytes of a large call are moved as rows of several widths too, each in the form that tuning has for it, since the form that is
best for a sum need not be best for none. All take turns, with two ways to copy the bytes that the call moves.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from difftest.bench import kernels, launch, measure, shapes
from difftest.bench.buffers import BufferSets
from difftest.bench.choices import addresses, choice, plan_of
from difftest.bench.measure import Entry
from difftest.bench.shapes import OURS, head, timed
from difftest.bench.timer import Timer
from difftest.cases.case import Case
from numba_kernels import tuning
from numba_kernels.kernels.config import Kernel
from reference.providers import Provider

SCHEMA = "numba-kernels/floor/1"
PARTS = ("points",)
EMPTY, MOVED = "empty kernel", "loads and stores"
SMALL = 2**21  # elements of the output: up to here launch and latency are most of a call's time
LARGE = (
    ("fused_add_rmsnorm", 2048, 131072),
    ("fused_add_rmsnorm", 512, 262144),
    ("rmsnorm", 1024, 16384),
    ("rmsnorm", 16384, 4096),
)
WIDTHS = (16384, 4096, 1024)  # of the rows as which a large call's bytes are moved
_BITS = {2: torch.int16, 4: torch.int32}


@dataclass(frozen=True, slots=True)
class Bare:
    """A kernel that a call is held beside: its name in the result, its maker, and the rows that it takes the call's bytes for."""

    name: str
    make: launch.Make
    case: Case

    def kernel(self, target: tuning.Target) -> Kernel:
        """The kernel of ours in whose place it is launched."""
        return choice(self.case, target)


def points(device: str = "cuda") -> list[Case]:
    """The benchmark's small calls, then the large ones whose bytes are moved."""
    small = [case for case in shapes.cases(device=device) if is_small(case)]
    return [*small, *(timed(op, "bf16", rows, width, device) for op, rows, width in LARGE)]


def is_small(case: Case) -> bool:
    """Whether the call is held beside an empty kernel."""
    return case.rows * case.width <= SMALL


def bare(case: Case, target: tuning.Target) -> list[Bare]:
    """What the call is held beside."""
    if is_small(case):
        return [Bare(EMPTY, kernels.make_empty, case), Bare(MOVED, kernels.make_move, case)]
    own = [] if choice(case, target).config.persistent else [Bare(MOVED, kernels.make_move, case)]
    narrower = [timed(case.op, case.dtype, case.rows * case.width // w, w, case.device) for w in WIDTHS if w < case.width]
    return [*own, *(Bare(f"{MOVED}, rows of {each.width}", kernels.make_move, each) for each in narrower)]


def point(case: Case, ours: Provider, target: tuning.Target, timer: Timer, device: torch.device) -> dict[str, Any]:
    """Times the call, what it is held beside, and copies. What fails is a row with its reason; DeviceLost where all is lost."""
    sets = BufferSets(case, shapes.calls(case, shapes.pool_bytes(timer.free_bytes(), 2)), device)
    size = (0, 0) if case.operator.mutated else (case.rows, case.width)
    outputs = [torch.empty(size, dtype=sets.first["input"].dtype, device=device) for _ in range(sets.count)]
    beside = bare(case, target)
    found: dict[str, Entry | dict[str, Any]] = {OURS: _enter(OURS, lambda: _calls_of(ours, sets), sets, timer)}
    for each in beside:
        found[each.name] = _enter(each.name, partial(_launches, each, target, sets, outputs, device), sets, timer)
    entries = [entry for entry in found.values() if isinstance(entry, Entry)]
    copies = [] if is_small(case) else measure.enter_copies(case, sets.count, timer, device)
    measure.take_turns([*entries, *copies], sets.count, timer)
    rows = [row if isinstance(row, dict) else _row(row, case.moved) for row in found.values()]
    for each, row in zip(beside, rows[1:], strict=True):
        entry = found[each.name]
        if isinstance(entry, Entry) and each.make is kernels.make_move:
            row |= _checked(each.case, entry, sets, outputs, timer)
    copy = measure.fastest_copy({entry.name: entry.samples for entry in copies}, case.moved)
    config = choice(case, target).config
    launched = {"threads": config.threads, "cluster": config.cluster, "pdl": config.pdl}
    return {**head(case), "calls": sets.count, "launch": launched, "copy": copy, "results": rows}


def _calls_of(ours: Provider, sets: BufferSets) -> list[Callable[[], Any]]:
    function = measure.native_call(ours, sets.case.op)
    return [partial(function, *sets.arguments(index)) for index in range(sets.count)]


def _launches(
    each: Bare, target: tuning.Target, sets: BufferSets, outputs: Sequence[torch.Tensor], device: torch.device
) -> list[Callable[[], Any]]:
    plan, kernel = plan_of(each.case), each.kernel(target)
    grid, shared = plan.shape(kernel)
    launched = launch.launcher_of(each.make, kernel, grid, plan.arguments(()), device.index or 0, shared)
    given = [addresses(sets.case, sets.tensors(index), outputs[index]) for index in range(sets.count)]
    return [partial(launched, *each) for each in given]


def _enter(name: str, make: Callable[[], list[Callable[[], Any]]], sets: BufferSets, timer: Timer) -> Entry | dict[str, Any]:
    """The calls captured, or the row of what can't be: a kernel that is refused is not the run's end."""
    start = time.perf_counter()
    try:
        calls = make()
        sets.refresh()
        timer.warm(calls[:2])
        return Entry(name, timer.capture(calls), sets.refresh, time.perf_counter() - start)
    except Exception as error:  # whatever the compiler or the driver says
        reason = measure.first_line(error)
    measure.raise_if_lost(timer, f"{sets.case}: after {name} failed with {reason}")
    gc.collect()
    timer.release()
    return {"kernel": name, "status": "skipped", "reason": reason}


def _row(entry: Entry, moved: int) -> dict[str, Any]:
    times = measure.timing(entry.samples, moved)
    return {"kernel": entry.name, "status": "ok", "us": times["us"], **({} if entry.name == EMPTY else {"gbps": times["gbps"]})}


def _checked(case: Case, entry: Entry, sets: BufferSets, outputs: Sequence[torch.Tensor], timer: Timer) -> dict[str, Any]:
    """Whether the bytes were moved, in the first call and the last; nothing where they were."""
    for output in outputs:
        output.zero_()
    timer.launch(entry.captured, sets.refresh)
    wanted = moved(case, sets.first_values())
    for index in dict.fromkeys((0, sets.count - 1)):
        held = {**sets.tensors(index), **({} if case.operator.mutated else {"output": outputs[index]})}
        for name, bits in wanted.items():
            different = int((_bits(held[name]).reshape(-1) != bits.reshape(-1)).count_nonzero())
            if different:
                return {"status": "wrong", "reason": f"call {index}: {different} elements of {name} are not what was moved there"}
    return {}


def moved(case: Case, first: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The bits that `kernels.make_move` leaves in each buffer, for `first` values taken as the case's rows."""
    op = case.operator
    x = _bits(first["input"]).reshape(case.rows, -1)
    if op.activation:
        gate, up = x.chunk(2, dim=1)
        return {"output": gate ^ up}
    weight = _bits(first["weight"])[: case.width]
    if op.mutated:
        return {"residual": x, "input": _bits(first["residual"]).reshape(case.rows, -1) ^ weight}
    return {"output": x ^ weight}


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_BITS[tensor.element_size()])


def to_compile(cases: Sequence[Case], target: tuning.Target) -> Iterator[tuple[launch.Make | None, Kernel]]:
    """What the points need compiled: (maker, kernel), None for the kernel itself; each once."""
    found: dict[tuple[launch.Make | None, Kernel], None] = {}
    for case in cases:
        found[None, choice(case, target)] = None
        for each in bare(case, target):
            found[each.make, each.kernel(target)] = None
    yield from found

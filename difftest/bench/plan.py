"""What to measure: points (operator, dtype, shape), how many calls a graph holds, and who takes part.

Imports `difftest.ledger` and `reference.operators`; nothing here needs a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from difftest import ledger
from difftest.dtypes import DTYPES
from difftest.errors import UsageError
from reference.operators import OPERATORS, Operator
from reference.providers import Provider

OURS = "numba"
EPS = 1e-6

PEERS = (
    "torch-rmsnorm",
    "torch-compile",
    "triton",
    "flashinfer",
    "flashinfer-cuda",
    "flashinfer-cute",
    "quack",
    "liger",
    "hf",
)
# What `flashinfer` itself would pick; not timed a third time where its two backends are.
_BACKENDS = {"flashinfer": ("flashinfer-cuda", "flashinfer-cute")}

DEFAULT_OPS = ("fused_add_rmsnorm", "silu_and_mul", "rmsnorm")
_NORM_SHAPES = (
    *((rows, 4096) for rows in (1, 16, 128, 4096, 16384)),
    (4096, 7168),
    (2048, 8192),
    (1024, 16384),
    (16384, 1024),
    (65536, 128),
    (8192, 111),
)
_GATED_SHAPES = (*((rows, 14336) for rows in (1, 16, 128, 4096)), (8192, 4096))
_WIDE_SHAPES = ((8192, 65536), (2048, 131072), (512, 262144))
# The dtypes beside bf16 share its code paths, so three points each say whether one of them lags.
_OTHER_DTYPES = ("fp16", "fp32")
_OTHER_POINTS = (
    ("fused_add_rmsnorm", 128, 4096),
    ("fused_add_rmsnorm", 4096, 4096),
    ("silu_and_mul", 4096, 14336),
)

MOST_CALLS = 200  # of some microseconds each: a replay of a quarter millisecond, against events of half a microsecond
POOL_BYTES = 3 * 2**30  # of prepared buffers and outputs a provider
ALIGNMENT = 256  # bytes at which each buffer starts, as from an allocator


@dataclass(frozen=True, slots=True)
class Point:
    """One operator on one shape: `rows` output rows of `width`, stored as `dtype`."""

    op: str
    dtype: str
    rows: int
    width: int

    @property
    def operator(self) -> Operator:
        """The operator."""
        return OPERATORS[self.op]

    @property
    def storage(self) -> torch.dtype:
        """torch's dtype."""
        return DTYPES[self.dtype].storage

    @property
    def moved(self) -> int:
        """Bytes that one fused call reads and writes, the weight once a launch: what GB/s divide by."""
        return ledger.moved(self.op, self.rows, self.width, DTYPES[self.dtype].itemsize)

    @property
    def set_bytes(self) -> int:
        """Bytes of one prepared call: inputs and outputs, the weight apart; outputs counted for in-place forms too."""
        stored = self.rows * self.width * DTYPES[self.dtype].itemsize
        return stored * {"add_norm": 4, "norm": 2, "gated": 3}[self.operator.family]

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.rows}x{self.width}"


def calls(point: Point, pool_bytes: int) -> int:
    """How many calls, each on its own buffers, one graph holds: what the pool holds, one at least, `MOST_CALLS` at most."""
    return max(1, min(MOST_CALLS, pool_bytes // point.set_bytes))


def pool_bytes(free: int, providers: int) -> int:
    """A provider's share of free device memory: every graph keeps its outputs, and intermediates need room beside them."""
    return min(POOL_BYTES, free // (2 * (providers + 2)))


def shapes(text: str) -> list[tuple[int, int]]:
    """`1x4096,16x4096` as (rows, width) pairs. UsageError, one line, for anything else."""
    found = []
    for word in (part.strip() for part in text.split(",") if part.strip()):
        rows, times, width = word.partition("x")
        if not (times and rows.isdecimal() and width.isdecimal() and int(rows) and int(width)):
            raise UsageError(f"--shapes: {word!r} is not a shape; write ROWSxWIDTH, as in 128x4096, comma-separated, from 1 up")
        found.append((int(rows), int(width)))
    if not found:
        raise UsageError(f"--shapes: {text!r} names no shape; write ROWSxWIDTH, as in 128x4096")
    return list(dict.fromkeys(found))


def points(ops: Sequence[str] = (), dtypes: Sequence[str] = (), at: Sequence[tuple[int, int]] = ()) -> list[Point]:
    """The points asked for, each once; what is left empty has its default.

    The default is what the README's tables hold: the first half is what a reader asks first, so that a run that is out of time
    has it. Named dtypes take every default shape of their operator; named shapes apply to every operator.
    """
    chosen = ops or DEFAULT_OPS
    if at or dtypes:
        found = [
            Point(op, dtype, *shape) for op in chosen for dtype in dtypes or ("bf16",) for shape in at or _default_shapes(op)
        ]
        return list(dict.fromkeys(found))
    found = [Point(op, "bf16", *shape) for op in chosen for shape in _default_shapes(op)]
    found += [Point(op, dtype, rows, width) for dtype in _OTHER_DTYPES for op, rows, width in _OTHER_POINTS if op in chosen]
    return list(dict.fromkeys(found))


def _default_shapes(op: str) -> tuple[tuple[int, int], ...]:
    family = OPERATORS[op].family
    if family == "gated":
        return _GATED_SHAPES
    return _NORM_SHAPES + _WIDE_SHAPES if family == "add_norm" else _NORM_SHAPES


def smallest(points: Iterable[Point]) -> dict[str, Point]:
    """Operator -> its point with the fewest elements, where the host's time is measured."""
    found: dict[str, Point] = {}
    for point in points:
        known = found.get(point.op)
        if known is None or point.rows * point.width < known.rows * known.width:
            found[point.op] = point
    return found


def entrants(op: str, providers: Sequence[Provider], named: bool) -> list[Provider]:
    """Who takes part in `op`. Unless they were `named`, without `flashinfer` where both its backends take part already."""
    if named:
        return list(providers)
    claiming = {provider.name for provider in providers if provider.claims(op)}
    return [p for p in providers if not (p.name in _BACKENDS and claiming.issuperset(_BACKENDS[p.name]))]


def turns(names: Sequence[str], rounds: int) -> Iterator[tuple[str, ...]]:
    """The order of each round: everyone once, another one first each time, so that no place in the round favours anyone."""
    for number in range(rounds):
        first = number % len(names) if names else 0
        yield (*names[first:], *names[:first])

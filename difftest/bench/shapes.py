"""What to measure: a case for each operator, dtype and shape; how many calls a graph holds; who takes part, and in which turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from difftest.cases.case import Case
from difftest.errors import UsageError
from reference.contracts import contract
from reference.formats import FORMATS
from reference.operators import Operator, operator
from reference.providers import Provider

OURS = "numba"

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
# Operators that weight every row alike normalise the hidden state; of those that work in place the widest rows are asked for too.
_WEIGHTED_SHAPES = (
    *((rows, 4096) for rows in (1, 16, 128, 4096, 16384)),
    (4096, 7168),
    (2048, 8192),
    (1024, 16384),
    (16384, 1024),
    (65536, 128),
    (8192, 111),
)
_WIDE_SHAPES = ((8192, 65536), (2048, 131072), (512, 262144))
# The others work on what a layer widens the hidden state to.
_INNER_SHAPES = (*((rows, 14336) for rows in (1, 16, 128, 4096)), (8192, 4096))
# The dtypes beside bf16 share its code paths, so three points each say whether one of them lags.
_OTHER_DTYPES = ("fp16", "fp32")
_OTHER_POINTS = (
    ("fused_add_rmsnorm", 128, 4096),
    ("fused_add_rmsnorm", 4096, 4096),
    ("silu_and_mul", 4096, 14336),
)

MOST_CALLS = 200  # of some microseconds each: a launch of a quarter millisecond, against events of half a microsecond
POOL_BYTES = 3 * 2**30  # of prepared buffers and outputs a provider
ALIGNMENT = 256  # bytes at which each buffer starts, as from an allocator


def timed(op: str, dtype: str, rows: int, width: int, device: str = "cuda") -> Case:
    """The case that is timed at one point: contiguous rows of unit-normal values under the operator's first contract."""
    return Case(op, dtype, (rows,), width, "normal", 0, contract(op), device=device)


def head(case: Case) -> dict[str, Any]:
    """What names a point in a result file, and the bytes that its GB/s divide by."""
    return {"op": case.op, "dtype": case.dtype, "rows": case.rows, "width": case.width, "bytes": case.moved}


def set_bytes(case: Case) -> int:
    """Bytes of one prepared call: row tensors and outputs, the weight apart; outputs counted for in-place forms too."""
    op = case.operator
    row = sum(op.row_length(name, case.width) for name in op.rows) + len(op.outputs) * case.width
    return case.rows * row * FORMATS[case.dtype].itemsize


def calls(case: Case, pool_bytes: int) -> int:
    """How many calls, each on its own buffers, one graph holds: what the pool holds, one at least, `MOST_CALLS` at most."""
    return max(1, min(MOST_CALLS, pool_bytes // set_bytes(case)))


def pool_bytes(free: int, providers: int) -> int:
    """A provider's share of free device memory: every graph keeps its outputs, and intermediates need room beside them."""
    return min(POOL_BYTES, free // (2 * (providers + 2)))


def parse(text: str) -> list[tuple[int, int]]:
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


def cases(
    ops: Sequence[str] = (), dtypes: Sequence[str] = (), at: Sequence[tuple[int, int]] = (), device: str = "cuda"
) -> list[Case]:
    """The cases asked for, each once; what is left empty has its default.

    The default is what docs/speed.md holds: the first half is what a reader asks first, so that a run that is out of time has
    it. Named dtypes take every default shape of their operator; named shapes apply to every operator.
    """
    chosen = ops or DEFAULT_OPS
    found = [
        timed(op, dtype, *shape, device)
        for op in chosen
        for dtype in dtypes or ("bf16",)
        for shape in at or default_shapes(operator(op))
    ]
    if not at and not dtypes:
        others = [(op, dtype, rows, width) for dtype in _OTHER_DTYPES for op, rows, width in _OTHER_POINTS if op in chosen]
        found += [timed(*other, device) for other in others]
    return list(dict.fromkeys(found))


def default_shapes(op: Operator) -> tuple[tuple[int, int], ...]:
    """The shapes (rows, width) of an operator that are timed unless others are named."""
    if not op.vectors:
        return _INNER_SHAPES
    return _WEIGHTED_SHAPES + _WIDE_SHAPES if op.mutated else _WEIGHTED_SHAPES


def smallest(asked: Iterable[Case]) -> dict[str, Case]:
    """Operator -> its case with the fewest elements, where the host's time is measured."""
    found: dict[str, Case] = {}
    for case in asked:
        known = found.get(case.op)
        if known is None or case.rows * case.width < known.rows * known.width:
            found[case.op] = case
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

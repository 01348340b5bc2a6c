"""Numba-CUDA's names that the emulator knows: what each waits for, which words of the environment it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numba import types as numba_types
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.cuda.stubs import Stub

from .. import vectors
from ..cuda_functions import substitute_of
from ..environment import Env, Kind
from .source import is_of_numba

SHUFFLES = {getattr(cuda, name): name for name in ("shfl_sync", "shfl_xor_sync", "shfl_down_sync", "shfl_up_sync")}
VOTES = {cuda.all_sync: Kind.ALL, cuda.any_sync: Kind.ANY, cuda.ballot_sync: Kind.BALLOT}
COUNTING_BARRIERS = {
    cuda.syncthreads_count: Kind.BARRIER_COUNT,
    cuda.syncthreads_and: Kind.BARRIER_AND,
    cuda.syncthreads_or: Kind.BARRIER_OR,
}


class Mark:
    """What stands for a form of the source that numba.cuda has no single name for; ``text``: how it is written."""

    def __init__(self, text: str) -> None:
        self.text = text


SPIN = Mark("a turn of a loop")  # at the start of the body of a loop that may spin
GRID_SYNC = Mark("cg.this_grid().sync")
MATCHES = {cuda.match_any_sync: Kind.MATCH_ANY, cuda.match_all_sync: Kind.MATCH_ALL}
COLLECTIVES: dict[Any, Kind] = {
    SPIN: Kind.SPIN,
    cuda.nanosleep: Kind.SPIN,
    GRID_SYNC: Kind.GRID,
    cuda.activemask: Kind.ACTIVE,
    **MATCHES,
    cuda.syncthreads: Kind.BARRIER,
    cuda.syncwarp: Kind.SYNCWARP,
    **COUNTING_BARRIERS,
    **dict.fromkeys(SHUFFLES, Kind.SHUFFLE),
    **VOTES,
}
NAMES = {
    getattr(cuda, name): f"cuda.{name}"
    for name in (
        "syncthreads", "syncwarp", "syncthreads_count", "syncthreads_and", "syncthreads_or", "all_sync", "any_sync",
        "ballot_sync", "match_any_sync", "match_all_sync", "activemask", "nanosleep", *SHUFFLES.values(),
    )
} | {mark: mark.text for mark in (SPIN, GRID_SYNC)}  # fmt: skip
ARRAYS = (cuda.shared.array, cuda.local.array)
_OPERATIONS = "add sub and_ or_ xor inc dec exch max min nanmax nanmin cas compare_and_swap"
ATOMICS = {getattr(cuda.atomic, name): name for name in _OPERATIONS.split()}
FENCES = (cuda.threadfence, cuda.threadfence_block, cuda.threadfence_system)
DIM3 = {
    cuda.blockIdx: (Env.BLOCK_X, Env.BLOCK_Y, Env.BLOCK_Z),
    cuda.blockDim: (Env.DIM_X, Env.DIM_Y, Env.DIM_Z),
    cuda.gridDim: (Env.GRID_X, Env.GRID_Y, Env.GRID_Z),
}
KNOWN = {
    *COLLECTIVES, *FENCES, *DIM3, cuda.threadIdx, cuda.laneid, cuda.warpsize, cuda.grid, cuda.gridsize, cuda.shared.array,
    cuda.local.array, cuda.const.array_like, cuda.lanemask_lt, cuda.cg.this_grid, *ATOMICS,
    *vectors.STUBS,
}  # fmt: skip


def is_stub(value: Any) -> bool:
    """``cuda.threadIdx`` and the like: classes that stand for what the compiler puts in their place."""
    return isinstance(value, type) and issubclass(value, Stub)


def is_known(value: Any) -> bool:
    return (is_hashable(value) and value in KNOWN) or substitute_of(value) is not None


def is_unsupported_function(value: Any) -> bool:
    """A function of numba.cuda that is neither known here nor, as the types are, also one on a CPU."""
    module = getattr(value, "__module__", None) or ""
    of_its_own = module.startswith("numba.cuda") and is_of_numba(module)
    return of_its_own and not is_known(value) and not isinstance(value, numba_types.Type | type | Dispatcher)


def waits_for(target: Any) -> Any:
    """What an intrinsic waits for, as its attribute ``waits_for`` says: until another intrinsic, called with the same arguments,
    is true; or "cluster", for all threads of the cluster. None: nothing."""
    return getattr(target, "waits_for", None) if isinstance(target, _Intrinsic) else None


def is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def device_array(value: Any) -> np.ndarray | None:
    """The memory of an array that the program put on the device; None: it is none."""
    found = getattr(value, "_ary", None) if getattr(type(value), "__cuda_ndarray__", False) else None
    return found if isinstance(found, np.ndarray) else None


def is_collective(target: Any) -> bool:
    return is_hashable(target) and target in COLLECTIVES

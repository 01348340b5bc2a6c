"""The full check: which thread touched which element, so that a missing barrier is found whatever the schedule.

Each *cell* (an element of the smallest dtype) of shared memory and of the arrays among a launch's arguments keeps three
stamps: its last write and two reads by different threads, of different warps where there are such. A *stamp* is (barrier
interval, thread, the thread's clock, source location). An access comes after a stamp of its own block if a barrier lies
between, if it is the same thread's, or if a chain of ``syncwarp`` leads from it to this thread (vector clocks, one a lane).
Otherwise two accesses, one of them a write, are a data race. Blocks of one launch are never ordered.

Shuffles and votes do not order memory: CUDA C++ Programming Guide, "Warp Shuffle Functions" ("do not imply a memory
barrier"). Limits: after two reads of different threads a third one is forgotten if its warp is not new, which only a
``syncwarp`` of part of a warp could tell apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, types

from .environment import Env, Fault
from .memory import base_address
from .words import njit, overload, peek, poke

STAMP = 4  # words: interval (0: never), thread (NOBODY: an access that the emulator can't see), clock, location
CELL = 3 * STAMP  # write, first reader, second reader
REGION = 4  # words: first address, end address, grain, address of the cells
NOBODY = -1
WARP = 32

THREAD, LOCATION, ARENA, ARENA_BYTES = int(Env.THREAD), int(Env.LOCATION), int(Env.ARENA), int(Env.ARENA_BYTES)
FAULT, FAULT_A, FAULT_B = int(Env.FAULT), int(Env.FAULT_A), int(Env.FAULT_B)
FAULT_C, FAULT_D = int(Env.FAULT_C), int(Env.FAULT_D)
EPOCH, BLOCK_EPOCH, CELLS, GRAIN = int(Env.EPOCH), int(Env.BLOCK_EPOCH), int(Env.CELLS), int(Env.GRAIN)
SEEN, REGIONS, REGION_COUNT = int(Env.SEEN), int(Env.REGIONS), int(Env.REGION_COUNT)
F_UNINITIALIZED, F_RACE, F_INDEX = int(Fault.UNINITIALIZED), int(Fault.RACE), int(Fault.INDEX)


class Found(Exception):
    """Raised in compiled code; the environment's words FAULT to FAULT_D say what was found."""


@njit
def _is_before(env, stamp):
    """Whether the access of a stamp comes before the thread that runs now; a stamp never set does."""
    interval, thread = peek(stamp, 0), peek(stamp, 1)
    now = peek(env, THREAD)
    if interval == 0 or thread == NOBODY:
        return True
    if interval < peek(env, BLOCK_EPOCH):
        return False
    if interval < peek(env, EPOCH) or thread == now:
        return True
    return thread // WARP == now // WARP and peek(peek(env, SEEN), now * WARP + thread % WARP) > peek(stamp, 2)


@njit
def _stamp(env, stamp):
    now = peek(env, THREAD)
    poke(stamp, 0, peek(env, EPOCH))
    poke(stamp, 1, now)
    poke(stamp, 2, peek(peek(env, SEEN), now * WARP + now % WARP))
    poke(stamp, 3, peek(env, LOCATION))


@njit
def _race(env, stamp, wrote, writes):
    poke(env, FAULT, F_RACE)
    poke(env, FAULT_A, peek(stamp, 1))
    poke(env, FAULT_B, peek(stamp, 3))
    poke(env, FAULT_C, 2 * int64(wrote) + int64(writes))
    poke(env, FAULT_D, int64(peek(stamp, 0) < peek(env, BLOCK_EPOCH)))
    raise Found


@njit
def _touch(env, cell, writes):
    """Check one access against a cell's stamps, and leave its own."""
    first, second = cell + 8 * STAMP, cell + 16 * STAMP
    if not _is_before(env, cell):
        _race(env, cell, True, writes)
    if writes:
        if not _is_before(env, first):
            _race(env, first, False, True)
        if not _is_before(env, second):
            _race(env, second, False, True)
        _stamp(env, cell)
    elif _is_before(env, first):
        _stamp(env, first)
    elif _is_before(env, second) or (peek(first, 1) // WARP == peek(second, 1) // WARP != peek(env, THREAD) // WARP):
        _stamp(env, second)


@njit
def _cells(env, address):
    """(address of the cells, first byte they stand for, their grain, 1 in shared memory) or zeros where nothing is kept."""
    arena = peek(env, ARENA)
    if arena <= address < arena + peek(env, ARENA_BYTES):
        return peek(env, CELLS), arena, peek(env, GRAIN), int64(1)
    regions = peek(env, REGIONS)
    for k in range(peek(env, REGION_COUNT)):
        start = peek(regions, k * REGION)
        if start <= address < peek(regions, k * REGION + 1):
            return peek(regions, k * REGION + 3), start, peek(regions, k * REGION + 2), int64(0)
    return int64(0), int64(0), int64(1), int64(0)


@njit
def check_access(env, address, size, writes):
    """Check an access of ``size`` bytes; raises :class:`Found`."""
    cells, start, grain, shared = _cells(env, address)
    if cells == 0:
        return
    for k in range((address - start) // grain, (address + size - 1 - start) // grain + 1):
        cell = cells + k * 8 * CELL
        if shared and peek(cell, 0) < peek(env, BLOCK_EPOCH):
            if not writes:
                poke(env, FAULT, F_UNINITIALIZED)
                poke(env, FAULT_A, address - start)
                raise Found
            for word in range(CELL):  # the first write in this block: earlier blocks had other shared memory
                poke(cell, word, 0)
        _touch(env, cell, writes)


@njit
def forget(env, address, size):
    """Shared memory that an intrinsic may have written: nothing is known about it from here on."""
    cells, start, grain, shared = _cells(env, address)
    if not shared or size == 0:
        return
    for k in range((address - start) // grain, (address + size - 1 - start) // grain + 1):
        cell = cells + k * 8 * CELL
        for word in range(CELL):
            poke(cell, word, 0)
        poke(cell, 0, peek(env, EPOCH))
        poke(cell, 1, NOBODY)


@njit
def _position(env, index, extent, axis):
    """A checked index: negative ones count from the end, as in Numba's own indexing."""
    wrapped = index + extent if index < 0 else index
    if not 0 <= wrapped < extent:
        poke(env, FAULT, F_INDEX)
        poke(env, FAULT_A, index)
        poke(env, FAULT_B, extent)
        poke(env, FAULT_C, axis)
        raise Found
    return wrapped


def _check(env: Any, array: Any, index: Any, writes: Any) -> None:
    """Check the access ``array[index]``; replaced by the overload below."""


@overload(_check)
def _check_overload(env, array, index, writes):
    if isinstance(array, types.Array) and array.ndim == 1 and isinstance(index, types.Integer):

        def one_axis(env, array, index, writes):
            at = _position(env, int64(index), array.shape[0], 0)
            check_access(env, base_address(array) + at * array.strides[0], array.itemsize, writes)

        return one_axis
    is_tuple = isinstance(index, types.BaseTuple) and all(isinstance(t, types.Integer) for t in index)  # type: ignore[attr-defined]
    if isinstance(array, types.Array) and is_tuple and len(index) == array.ndim == 2:

        def two_axes(env, array, index, writes):
            row = _position(env, int64(index[0]), array.shape[0], 0)
            column = _position(env, int64(index[1]), array.shape[1], 1)
            offset = row * array.strides[0] + column * array.strides[1]
            check_access(env, base_address(array) + offset, array.itemsize, writes)

        return two_axes
    return lambda env, array, index, writes: None  # slices, tuples and more axes: Numba's own bounds check remains


def read(env: Any, array: Any, index: Any) -> Any:
    """``array[index]``, checked."""


@overload(read, prefer_literal=True)
def _read_overload(env, array, index):
    if isinstance(array, types.Array):

        def of_array(env, array, index):
            _check(env, array, index, False)
            return array[index]

        return of_array
    if isinstance(index, types.IntegerLiteral):
        literal = index.literal_value
        return lambda env, array, index: array[literal]
    return lambda env, array, index: array[index]


def write(env: Any, array: Any, index: Any) -> None:
    """The check that precedes ``array[index] = value``."""


@overload(write)
def _write_overload(env, array, index):
    return lambda env, array, index: _check(env, array, index, True)


def span(env: Any, array: Any, index: Any, count: Any, writes: Any) -> None:
    """The check that precedes an intrinsic's access to ``count`` elements from ``array[index]``."""


@overload(span)
def _span_overload(env, array, index, count, writes):
    if not (isinstance(array, types.Array) and array.ndim == 1):
        return lambda env, array, index, count, writes: None

    def of_array(env, array, index, count, writes):
        for k in range(int64(index), int64(index) + count):
            if not 0 <= k < array.shape[0]:
                _position(env, array.shape[0] if k < 0 else k, array.shape[0], 0)
            check_access(env, base_address(array) + k * array.strides[0], array.itemsize, writes)

    return of_array


def escape(env: Any, value: Any) -> None:
    """What precedes a call of an intrinsic that is not described: an array in shared memory is no longer followed."""


@overload(escape)
def _escape_overload(env, value):
    if not isinstance(value, types.Array):
        return lambda env, value: None
    return lambda env, value: forget(env, base_address(value), value.size * value.itemsize)


def room_for_cells(size: int, grain: int) -> int:
    """Bytes of the cells for ``size`` bytes of memory."""
    return (size // grain + 1) * CELL * 8


def regions_of(arrays: list[np.ndarray]) -> list[tuple[int, int, int]]:
    """(first address, end, grain) of the memory under some arrays, overlapping ones joined."""
    spans = []
    for array in arrays:
        if array.size:
            low, high = np.lib.array_utils.byte_bounds(array)
            spans.append((low, high, array.itemsize))
    joined: list[tuple[int, int, int]] = []
    for low, high, grain in sorted(spans):
        if joined and low < joined[-1][1]:
            before = joined[-1]
            joined[-1] = (before[0], max(before[1], high), min(before[2], grain))
        else:
            joined.append((low, high, grain))
    return joined

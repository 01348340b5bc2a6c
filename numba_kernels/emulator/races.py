"""The full check's one account of memory, by byte address: which thread touched which bytes, whatever syntax it did so in.

``access`` runs before each load and store of a kernel's LLVM code (accounting.py puts the calls there). Each *cell* (a few bytes)
of shared memory and of the arrays among a launch's arguments keeps three stamps: its last write, and two reads by different
threads, of different warps where there are such. An atomic operation stands where a write does, or, beside an unordered one,
where a read does. A *stamp* says (barrier interval, source location, thread, the thread's clock). An access comes after a stamp
of its own block if a barrier lies between, if it is the same thread's, or if a chain of ``syncwarp`` leads from it to this thread
(vector clocks, one a lane); after another thread's also by way of fences and atomics (ordering.py) or a barrier of the grid.
Otherwise two accesses, one of them a write and not both atomic, are a data race: so a missing barrier is found in any schedule.

Shuffles and votes do not order memory: CUDA C++ Programming Guide, "Warp Shuffle Functions" ("do not imply a memory barrier").
Limits: after two reads of different threads a third one is forgotten if its warp is not new, which only a ``syncwarp`` of part of
a warp, or a lock, could tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Any

import numpy as np
from numba import int64

from .environment import Env, Fault
from .ordering import is_ordered
from .words import njit, peek, peek_bytes, poke

STAMP = 2  # words: interval << 24 | location (0: never), thread of the grid << 32 | clock
CELL = 3 * STAMP + 1  # write, first reader, second reader; which of them are atomic, a bit each
REGION = 4  # words: first address, end address, log2 of the bytes that a cell stands for, address of the cells
WARP = 32
LOCATIONS = 1 << 24

THREAD, GRID_THREAD, LOCATION = int(Env.THREAD), int(Env.GRID_THREAD), int(Env.LOCATION)
ARENA, ARENA_BYTES = int(Env.ARENA), int(Env.ARENA_BYTES)
FAULT, FAULT_A, FAULT_B = int(Env.FAULT), int(Env.FAULT_A), int(Env.FAULT_B)
FAULT_C, FAULT_D, FAULT_AT = int(Env.FAULT_C), int(Env.FAULT_D), int(Env.FAULT_AT)
NOTE_A, NOTE_B, NOTE_C, NOTE_D, STRICT = (int(w) for w in (Env.NOTE_A, Env.NOTE_B, Env.NOTE_C, Env.NOTE_D, Env.STRICT))
GRID_EPOCH, POOL = int(Env.GRID_EPOCH), int(Env.POOL)
ATOMIC_NOW = int(Env.ATOMIC_NOW)
EPOCH, BLOCK_EPOCH, CELLS, SHIFT = int(Env.EPOCH), int(Env.BLOCK_EPOCH), int(Env.CELLS), int(Env.SHIFT)
SEEN, REGIONS, REGION_COUNT, PADDED = int(Env.SEEN), int(Env.REGIONS), int(Env.REGION_COUNT), int(Env.PADDED)
F_UNINITIALIZED, F_RACE, F_GRAIN = int(Fault.UNINITIALIZED), int(Fault.RACE), int(Fault.GRAIN)

WRITES, ATOMIC, KNOWN = 1, 2, 4  # an access: it writes, it is atomic, the value that it writes is given


@njit
def _block_start(env):
    """The number in the grid of the first thread of the block whose thread runs now."""
    thread, padded = peek(env, THREAD), peek(env, PADDED)
    if thread >= padded:  # of blocks that run together
        thread %= padded
    return peek(env, GRID_THREAD) - thread


@njit
def _is_before(env, stamp, start):
    """Whether the access of a stamp comes before the thread that runs now, of the block that starts at ``start``; a stamp never
    set does."""
    when = peek(stamp, 0)
    if when == 0:
        return True
    who = peek(stamp, 1)
    thread, now = who >> 32, peek(env, GRID_THREAD)
    if thread == now:
        return True
    interval = when >> 24
    if start <= thread < start + peek(env, PADDED):
        if interval < peek(env, EPOCH):
            return True
        if thread // WARP == now // WARP:
            seen = peek(env, SEEN) + (peek(env, THREAD) * WARP + thread % WARP) * 8
            if peek(seen, 0) > who & 0xFFFFFFFF:
                return True
    if interval <= peek(env, GRID_EPOCH):
        return True
    return peek(env, POOL) != 0 and is_ordered(env, thread, interval, who & 0xFFFFFFFF)


@njit
def _stamp(env, stamp):
    now = peek(env, GRID_THREAD)
    poke(stamp, 0, peek(env, EPOCH) << 24 | peek(env, LOCATION))
    poke(stamp, 1, now << 32 | peek(peek(env, SEEN), peek(env, THREAD) * WARP + now % WARP))


@njit
def _race(env, stamp, before, now):
    """The fault of two accesses, each WRITES or not and ATOMIC or not."""
    poke(env, FAULT, F_RACE)
    poke(env, FAULT_A, peek(stamp, 1) >> 32)
    poke(env, FAULT_B, peek(stamp, 0) & (LOCATIONS - 1))
    poke(env, FAULT_C, before << 2 | (now & 3))
    poke(env, FAULT_AT, peek(env, LOCATION))


@njit
def _note(env, stamp):
    """That two threads, in no order, write the same value: the first such pair is kept."""
    if peek(env, NOTE_B) == 0:
        poke(env, NOTE_A, peek(stamp, 1) >> 32)
        poke(env, NOTE_B, peek(stamp, 0) & (LOCATIONS - 1))
        poke(env, NOTE_C, peek(env, GRID_THREAD))
        poke(env, NOTE_D, peek(env, LOCATION))


@njit
def _touch(env, cell, how, start, address, size, value):
    """Check one access against a cell's stamps, and leave its own. ``value``: what ``size`` bytes at ``address`` become, if it
    writes what is KNOWN."""
    first, second, flags = cell + 8 * STAMP, cell + 16 * STAMP, cell + 24 * STAMP
    atomic = peek(flags, 0)
    writes, is_atomic = how & WRITES != 0, how & ATOMIC != 0
    after_write = _is_before(env, cell, start)
    if not after_write and not (is_atomic and atomic & 1):
        same = how & KNOWN != 0 and peek_bytes(address, size) == value
        if same and not atomic & 1 and peek(env, STRICT) == 0:
            _note(env, cell)
        else:
            _race(env, cell, WRITES | (ATOMIC if atomic & 1 else 0), how)
            return
    after_first = _is_before(env, first, start)
    if writes or atomic & 6:
        after_second = _is_before(env, second, start)
        for stamp, after, bit in ((first, after_first, int64(2)), (second, after_second, int64(4))):
            was_atomic = atomic & bit != 0
            if not after and (writes or was_atomic) and not (is_atomic and was_atomic):
                _race(env, stamp, (WRITES | ATOMIC) if was_atomic else 0, how)
                return
    if writes and (after_write or not is_atomic):
        _stamp(env, cell)
        atomic = atomic & 6 | int64(is_atomic)
    elif after_first:
        _stamp(env, first)
        atomic = atomic & 5 | int64(is_atomic) << 1
    elif _is_before(env, second, start) or (peek(first, 1) >> 37 == peek(second, 1) >> 37 != peek(env, GRID_THREAD) >> 5):
        _stamp(env, second)
        atomic = atomic & 3 | int64(is_atomic) << 2
    poke(flags, 0, atomic)


@njit
def _region(env, address):
    """The table entry of the array that an address lies in; 0 where there is none."""
    regions = peek(env, REGIONS)
    for k in range(peek(env, REGION_COUNT)):
        entry = regions + k * REGION * 8
        if peek(entry, 0) <= address < peek(entry, 1):
            return entry
    return int64(0)


@njit
def access(env, address, size, how, value):
    """Account for an access of ``size`` bytes; what is wrong is left in the environment, and the thread runs to its next wait."""
    if env == 0 or peek(env, FAULT) != 0 or size == 0:
        return int64(0)
    if peek(env, ATOMIC_NOW) != 0:
        how |= ATOMIC
    start = peek(env, ARENA)
    shared = start <= address < start + peek(env, ARENA_BYTES)
    if shared:
        cells, shift = peek(env, CELLS), peek(env, SHIFT)
    else:
        entry = _region(env, address)
        if entry == 0:
            return int64(0)
        start, shift, cells = peek(entry, 0), peek(entry, 2), peek(entry, 3)
    offset = address - start
    if (offset | size) & ((1 << shift) - 1) != 0:
        poke(env, FAULT, F_GRAIN)
        return int64(0)
    block = _block_start(env)
    for k in range(offset >> shift, (offset + size) >> shift):
        cell = cells + k * 8 * CELL
        if shared and peek(cell, 0) >> 24 < peek(env, BLOCK_EPOCH):
            if not how & WRITES or how & ATOMIC:
                poke(env, FAULT, F_UNINITIALIZED)
                poke(env, FAULT_A, offset)
                poke(env, FAULT_AT, peek(env, LOCATION))
                return int64(0)
            for word in range(CELL):  # the first write in this block: earlier blocks had other shared memory
                poke(cell, word, 0)
        _touch(env, cell, how, block, address, size, value)
    return int64(0)


def room_for_cells(size: int, shift: int) -> int:
    """Bytes of the cells for ``size`` bytes of memory, one for ``2 ** shift``."""
    return ((size >> shift) + 1) * CELL * 8


def shift_of(grain: int) -> int:
    """log2 of the largest power of two that divides a number of bytes: a cell stands for so many."""
    return (grain & -grain).bit_length() - 1


def arrays_in(args: Iterable[Any]) -> list[np.ndarray]:
    """The arrays among some arguments, also those inside tuples."""
    found: list[np.ndarray] = []
    for value in args:
        if isinstance(value, np.ndarray):
            found.append(value)
        elif isinstance(value, tuple):
            found += arrays_in(value)
    return found


def grain_of(dtype: np.dtype) -> int:
    """Bytes of the largest cells that none of a dtype's fields shares with another."""
    if dtype.fields is None:
        return dtype.base.itemsize // (2 if dtype.kind == "c" else 1)
    return gcd(dtype.itemsize, *(n for kind, offset, *_ in dtype.fields.values() for n in (offset, grain_of(kind))))


def regions_of(arrays: list[np.ndarray]) -> list[tuple[int, int, int]]:
    """(first address, end, grain) of the memory under some arrays, overlapping ones joined."""
    spans = []
    for array in arrays:
        if array.size:
            low, high = np.lib.array_utils.byte_bounds(array)
            spans.append((low, high, gcd(grain_of(array.dtype), *(abs(s) for s in array.strides))))
    joined: list[tuple[int, int, int]] = []
    for low, high, grain in sorted(spans):
        if joined and low < joined[-1][1]:
            before = joined[-1]
            joined[-1] = (before[0], max(before[1], high), gcd(before[2], grain, low - before[0]))
        else:
            joined.append((low, high, grain))
    return joined

"""What orders accesses of threads that share no barrier: barriers of the grid, and a fence with an atomic.

A thread that has made a fence releases, at each atomic that follows, what it knew at the fence: its own accesses and those that
it had seen. A thread that makes an atomic on the same address later knows it from then on (so a fence before the atomic that
gives a lock back, or counts a block as done, is needed; one after the atomic that takes it is not asked for). A barrier spreads
over the block what each of its threads knows.

What a thread knows is a *vector* of words: for each block of the grid the interval before which all of its accesses are known,
then for each thread that ever released something the clock before which its accesses are known. Vectors lie in a pool; few
threads need one.
"""

from __future__ import annotations

from numba import int64

from .environment import Env, Fault
from .libraries import OutOfLineCompiler
from .words import njit, peek, poke

GRID_THREAD, THREAD, EPOCH = int(Env.GRID_THREAD), int(Env.THREAD), int(Env.EPOCH)
SEEN, PADDED, FAULT, LOCATION, FAULT_AT = int(Env.SEEN), int(Env.PADDED), int(Env.FAULT), int(Env.LOCATION), int(Env.FAULT_AT)
POOL, POOL_USED, POOL_END, VECTOR = int(Env.POOL), int(Env.POOL_USED), int(Env.POOL_END), int(Env.VECTOR)
BLOCKS, RELEASERS, IDS, OWN, OF_BLOCK = int(Env.BLOCKS), int(Env.RELEASERS), int(Env.IDS), int(Env.OWN), int(Env.OF_BLOCK)
FENCED, PLACES = int(Env.FENCED), int(Env.PLACES)
F_POOL = int(Fault.POOL)

WARP = 32
MOST_RELEASERS = 4096
MOST_PLACES = 1 << 14  # addresses of atomics that releases go through; a power of two
FENCE = WARP + 2  # words: interval, vector, the clocks seen of each lane


@njit(pipeline_class=OutOfLineCompiler)
def is_ordered(env, thread, interval, clock):
    """Whether an access (grid thread, barrier interval, clock) comes before the thread that runs now by fences and atomics."""
    block = thread // peek(env, PADDED)
    number = peek(peek(env, IDS), thread)
    for vector in (peek(peek(env, OWN), peek(env, THREAD)), peek(peek(env, OF_BLOCK), peek(env, THREAD) // peek(env, PADDED))):
        if vector == 0:
            continue
        if peek(vector, block) > interval:
            return True
        if number != 0 and peek(vector, peek(env, BLOCKS) + number) > clock:
            return True
    return False


@njit
def _new_vector(env):
    """An empty vector; 0, and a fault, where the pool is used up."""
    made = peek(env, POOL) + peek(env, POOL_USED)
    if peek(env, POOL_USED) + peek(env, VECTOR) > peek(env, POOL_END):
        poke(env, FAULT, F_POOL)
        poke(env, FAULT_AT, peek(env, LOCATION))
        return int64(0)
    poke(env, POOL_USED, peek(env, POOL_USED) + peek(env, VECTOR))
    return made


@njit
def _join(env, into, other):
    for k in range(peek(env, BLOCKS) + peek(env, RELEASERS) + 1):
        if peek(other, k) > peek(into, k):
            poke(into, k, peek(other, k))


@njit
def _join_into(env, place, other):
    """Join a vector into the one whose address ``place`` holds, made if there is none and room for one."""
    if peek(place, 0) == 0:
        poke(place, 0, _new_vector(env))
    if peek(place, 0) != 0:
        _join(env, peek(place, 0), other)


@njit
def _number(env, thread):
    """The number of a thread among those that released something; 0, and a fault, where there are too many."""
    ids = peek(env, IDS)
    if peek(ids, thread) == 0:
        if peek(env, RELEASERS) + 1 >= MOST_RELEASERS:
            poke(env, FAULT, F_POOL)
            poke(env, FAULT_AT, peek(env, LOCATION))
            return int64(0)
        poke(env, RELEASERS, peek(env, RELEASERS) + 1)
        poke(ids, thread, peek(env, RELEASERS))
    return peek(ids, thread)


@njit
def fence(env):
    """``threadfence``: what the thread knows now is what its next atomics release."""
    if peek(env, POOL) == 0:
        return
    thread = peek(env, THREAD)
    seen = peek(env, SEEN) + thread * WARP * 8
    lane = thread % WARP
    poke(seen, lane, peek(seen, lane) + 1)
    kept = peek(env, FENCED) + thread * FENCE * 8
    poke(kept, 0, peek(env, EPOCH))
    for k in range(WARP):
        poke(kept, 2 + k, peek(seen, k))
    own = peek(peek(env, OWN), thread)
    if own != 0:
        _join_into(env, kept + 8, own)


@njit
def _place(env, address, makes):
    """The vector that an address of atomics holds, made if ``makes``; 0 where there is none."""
    table = peek(env, PLACES)
    at = (address >> 2) * 0x9E3779B1 & (MOST_PLACES - 1)
    for _ in range(MOST_PLACES):
        if peek(table, 2 * at) == address:
            return peek(table, 2 * at + 1)
        if peek(table, 2 * at) == 0:
            if not makes:
                return int64(0)
            vector = _new_vector(env)
            if vector != 0:
                poke(table, 2 * at, address)
                poke(table, 2 * at + 1, vector)
            return vector
        at = (at + 1) & (MOST_PLACES - 1)
    poke(env, FAULT, F_POOL)
    poke(env, FAULT_AT, peek(env, LOCATION))
    return int64(0)


@njit
def synchronise(env, address):
    """What an atomic orders: the thread learns what was released there, and releases what it knew at its last fence."""
    if peek(env, POOL) == 0 or peek(env, FAULT) != 0:
        return
    thread = peek(env, THREAD)
    kept = peek(env, FENCED) + thread * FENCE * 8
    fenced = peek(kept, 0) != 0
    place = _place(env, address, fenced)
    if place == 0:
        return
    owns = peek(env, OWN)
    if peek(owns, thread) == 0:
        poke(owns, thread, _new_vector(env))
    own = peek(owns, thread)
    if own == 0:
        return
    _join(env, own, place)
    if not fenced:
        return
    grid_thread, padded = peek(env, GRID_THREAD), peek(env, PADDED)
    if peek(kept, 1) != 0:
        _join(env, place, peek(kept, 1))
    of_block = peek(peek(env, OF_BLOCK), thread // padded)
    if of_block != 0:
        _join(env, place, of_block)
    block = grid_thread // padded
    poke(place, block, max(peek(place, block), peek(kept, 0)))
    first = grid_thread // WARP * WARP
    for lane in range(WARP):
        clock = peek(kept, 2 + lane)
        if clock != 0:
            at = peek(env, BLOCKS) + _number(env, first + lane)
            poke(place, at, max(peek(place, at), clock))


@njit
def spread(env, start, stop):
    """After a barrier of the threads ``start`` to ``stop - 1``: the block knows what each of them knew."""
    if peek(env, POOL) == 0:
        return
    place = peek(env, OF_BLOCK) + start // peek(env, PADDED) * 8
    for t in range(start, stop):
        own = peek(peek(env, OWN), t)
        if own != 0:
            _join_into(env, place, own)


@njit
def forget(env, start, stop):
    """Before another block starts in the places of threads ``start`` to ``stop - 1``: it knows nothing yet."""
    if peek(env, POOL) == 0:
        return
    poke(peek(env, OF_BLOCK), start // peek(env, PADDED), 0)
    for t in range(start, stop):
        poke(peek(env, OWN), t, 0)
        poke(peek(env, FENCED) + t * FENCE * 8, 0, 0)
        poke(peek(env, FENCED) + t * FENCE * 8, 1, 0)

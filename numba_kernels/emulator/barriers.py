"""When threads that wait may go on: a warp's collectives, a block's barriers, a cluster's barriers and conditions.

A warp collective is done once every lane that it names has arrived or ended, a barrier of the block once every thread has arrived
or returned, a barrier of the grid once each block's first thread has arrived and every other one has arrived or ended:

- PTX ISA, ``shfl.sync``, ``vote.sync`` and ``match.sync``: a thread waits for "all non-exited threads" of its mask. CUDA guide,
  ``__syncwarp``: "all non-exited threads named in mask must execute a corresponding __syncwarp() with the same mask".
- PTX ISA, ``exit``: "if the exiting threads are holding up the barrier, the barrier is released". But ``barrier``, in its form
  ``.aligned``, which ``cuda.syncthreads`` is: "in conditionally executed code, an aligned barrier instruction should only be used
  if it is known that all threads in CTA evaluate the condition identically, otherwise behavior is undefined". So a thread that
  returned is not waited for, and one that took a branch around the barrier to the kernel's end is a fault.
- CUDA's cooperative_groups/details/sync.h, ``sync_grids``: the block's threads meet at a barrier without ``.aligned``, and thread
  (0, 0, 0) arrives for them.
"""

from __future__ import annotations

from typing import Any

import numba

from .environment import Env, Fault, Kind
from .ordering import spread
from .words import njit, peek, poke

WARP = 32
# Numba wants plain integers as globals.
BLOCK_X, BLOCK_Y, BLOCK_Z = int(Env.BLOCK_X), int(Env.BLOCK_Y), int(Env.BLOCK_Z)
GRID_X, GRID_Y, GRID_Z = int(Env.GRID_X), int(Env.GRID_Y), int(Env.GRID_Z)
DIM_X, DIM_Y, DIM_Z = int(Env.DIM_X), int(Env.DIM_Y), int(Env.DIM_Z)
THREAD, ARENA, ARENA_BYTES = int(Env.THREAD), int(Env.ARENA), int(Env.ARENA_BYTES)
LOCALS, LOCAL_BYTES = int(Env.LOCALS), int(Env.LOCAL_BYTES)
MASKS, VALUES, SOURCES, ANSWERS, ENDED = (int(w) for w in (Env.MASKS, Env.VALUES, Env.SOURCES, Env.ANSWERS, Env.ENDED))
FAULT, FAULT_A, FAULT_B, FAULT_C, FAULT_D = (int(w) for w in (Env.FAULT, Env.FAULT_A, Env.FAULT_B, Env.FAULT_C, Env.FAULT_D))
EPOCH, BLOCK_EPOCH, SEEN = int(Env.EPOCH), int(Env.BLOCK_EPOCH), int(Env.SEEN)
LAST_BARRIER = int(Kind.BARRIER_OR)
BARRIER_COUNT, BARRIER_AND, BARRIER_OR = int(Kind.BARRIER_COUNT), int(Kind.BARRIER_AND), int(Kind.BARRIER_OR)
SYNCWARP, SHUFFLE, ALL, ANY, BALLOT = (int(k) for k in (Kind.SYNCWARP, Kind.SHUFFLE, Kind.ALL, Kind.ANY, Kind.BALLOT))
F_BARRIER, F_COLLECTIVE, F_OTHER_MASK = int(Fault.BARRIER), int(Fault.COLLECTIVE), int(Fault.OTHER_MASK)
F_NOT_IN_MASK, F_SOURCE, F_NEVER = int(Fault.NOT_IN_MASK), int(Fault.SOURCE), int(Fault.NEVER)
GRID_THREAD, PADDED, BLOCK_BASE = int(Env.GRID_THREAD), int(Env.PADDED), int(Env.BLOCK_BASE)
POLL, AT_CLUSTER, SPIN, AT_GRID = int(Kind.POLL), int(Kind.CLUSTER), int(Kind.SPIN), int(Kind.GRID)
MATCH_ANY, MATCH_ALL, ACTIVE = int(Kind.MATCH_ANY), int(Kind.MATCH_ALL), int(Kind.ACTIVE)
TOGETHER, FIRST_BLOCK, CLUSTER_ARENA = int(Env.TOGETHER), int(Env.FIRST_BLOCK), int(Env.CLUSTER_ARENA)
PASSED, PROGRESS, SPINS, PROVES = int(Env.PASSED), int(Env.PROGRESS), int(Env.SPINS), int(Env.PROVES)
SPAN, EPOCHS, INTERVALS, GRID_EPOCH = int(Env.SPAN), int(Env.EPOCHS), int(Env.INTERVALS), int(Env.GRID_EPOCH)

# States of a thread in the word ENDED: it runs, it left by a return statement, it ran off the kernel's end.
RUNS, RETURNED, FINISHED = 0, 1, 2
I64 = numba.int64


@njit
def next_random(state, bound):
    """Advance the xorshift64 generator in the word at ``state``; a number in [0, bound)."""
    x = numba.uint64(peek(state, 0))
    x ^= x << numba.uint64(13)
    x ^= x >> numba.uint64(7)
    x ^= x << numba.uint64(17)
    poke(state, 0, I64(x))
    return I64((x >> numba.uint64(11)) % numba.uint64(bound))


@njit
def _fault(env, code, a, b, c, d):
    poke(env, FAULT, code)
    poke(env, FAULT_A, a)
    poke(env, FAULT_B, b)
    poke(env, FAULT_C, c)
    poke(env, FAULT_D, d)
    return code


@njit
def _answer(env, kinds, first, lane, present, site):
    """Do the collective of the lanes ``present`` (a mask of lanes from thread ``first``) for one lane; a fault or 0."""
    kind = peek(kinds, site)
    t = first + lane
    values, answers = peek(env, VALUES), peek(env, ANSWERS)
    if kind == SHUFFLE:
        source = peek(peek(env, SOURCES), t)
        if not (present >> source) & 1:
            return _fault(env, F_SOURCE, t, site, source, 0)
        poke(answers, t, peek(values, first + source))
    elif kind == ACTIVE:
        poke(answers, t, present)
    elif kind in (MATCH_ANY, MATCH_ALL):
        same = I64(0)
        for j in range(WARP):
            if (present >> j) & 1 and peek(values, first + j) == peek(values, t):
                same |= I64(1) << j
        poke(answers, t, same if kind == MATCH_ANY or same == present else I64(0))
    elif kind != SYNCWARP:
        ballot = I64(0)
        for j in range(WARP):
            if (present >> j) & 1 and peek(values, first + j) != 0:
                ballot |= I64(1) << j
        if kind == ALL:
            ballot = I64(ballot == present)
        elif kind == ANY:
            ballot = I64(ballot != 0)
        poke(answers, t, ballot)
    return 0


@njit
def _together(kinds, site, other):
    """Whether lanes at two sites meet: at the same one, or at any two ``syncwarp`` (from sm_70 on)."""
    return site == other or (peek(kinds, site) == SYNCWARP and peek(kinds, other) == SYNCWARP)


@njit
def complete_collectives(env, kinds, waits, first, count):
    """Release the lanes (threads first to first + count - 1) whose collective is complete: how many, or minus a fault."""
    masks, ended = peek(env, MASKS), peek(env, ENDED)
    released = 0
    done = I64(0)
    for lane in range(count):
        site = peek(waits, first + lane)
        if (done >> lane) & 1 or site == 0 or peek(kinds, site) <= LAST_BARRIER or peek(kinds, site) >= POLL:
            continue
        if peek(kinds, site) == ACTIVE:  # whatever lane can go on has done so
            mask = I64(0)
            for j in range(count):
                if peek(waits, first + j) == site:
                    mask |= I64(1) << j
                    poke(masks, first + j, I64(0))
            for j in range(count):
                if (mask >> j) & 1:
                    poke(masks, first + j, mask)
        mask = peek(masks, first + lane)
        if not (mask >> lane) & 1:
            return -_fault(env, F_NOT_IN_MASK, first + lane, site, 0, 0)
        present = I64(0)
        complete = True
        for j in range(WARP):
            if not (mask >> j) & 1 or j >= count:
                continue  # lanes that the block does not have are not waited for
            if peek(ended, first + j) != RUNS:  # nor is one that has ended, unless it last passed here without this lane
                last = peek(masks, first + j)
                if last >> WARP == site and not (last >> lane) & 1:
                    return -_fault(env, F_OTHER_MASK, first + lane, site, first + j, site)
                continue
            if not _together(kinds, site, peek(waits, first + j)) or peek(masks, first + j) != mask:
                complete = False
                break
            present |= I64(1) << j
        if not complete:
            continue
        for j in range(count):
            if (present >> j) & 1 and _answer(env, kinds, first, j, present, site) != 0:
                return -peek(env, FAULT)
        if peek(kinds, site) == SYNCWARP and peek(env, SEEN) != 0:
            _join_clocks(env, first, present)
        for j in range(count):
            if (present >> j) & 1:
                poke(waits, first + j, 0)
                poke(masks, first + j, mask | site << WARP)  # the last that it took part in
                released += 1
        done |= present
    return released


@njit
def _join_clocks(env, first, present):
    """``syncwarp`` orders memory: each lane present has now seen all that any of them had (vector clocks, see races.py)."""
    seen = peek(env, SEEN)
    for j in range(WARP):
        if (present >> j) & 1:
            at = (first + j) * WARP + j
            poke(seen, at, peek(seen, at) + 1)
    for lane in range(WARP):
        newest = I64(0)
        for j in range(WARP):
            if (present >> j) & 1:
                newest = max(newest, peek(seen, (first + j) * WARP + lane))
        for j in range(WARP):
            if (present >> j) & 1:
                poke(seen, (first + j) * WARP + lane, newest)
    return 0


@njit
def _release_barrier(env, kind, waits, start, stop):
    """Answer the block's threads, numbers ``start`` to ``stop - 1``, and let them go on."""
    count = I64(0)
    present = I64(0)
    for t in range(start, stop):
        if peek(peek(env, ENDED), t) == RUNS:
            present += 1
            count += peek(peek(env, VALUES), t) != 0
    if kind == BARRIER_AND:
        count = I64(count == present)
    elif kind == BARRIER_OR:
        count = I64(count != 0)
    for t in range(start, stop):
        poke(peek(env, ANSWERS), t, count)
        poke(waits, t, 0)
    next_interval(env, start)
    spread(env, start, stop)
    return 0


@njit
def next_interval(env, start):
    """The block of thread ``start`` begins a new barrier interval."""
    interval = peek(env, INTERVALS) + 1
    poke(env, INTERVALS, interval)
    poke(env, EPOCH, interval)
    poke(peek(env, EPOCHS), start // peek(env, PADDED) * 2, interval)


@njit
def _complete_block(env, kinds, waits, start, stop):
    """Every thread of a block waits or has ended. Release its barrier: 0; 1 when every thread has ended; 2 where threads wait for
    more than their block; otherwise minus a fault."""
    ended, masks = peek(env, ENDED), peek(env, MASKS)
    waiting: Any = I64(-1)
    beyond = False
    for t in range(start, stop):
        site = peek(waits, t)
        if site == 0:
            continue
        if LAST_BARRIER < peek(kinds, site) < POLL:  # a collective that can't complete: say which lane it lacks
            mask, first = peek(masks, t), t // WARP * WARP
            for other in range(first, min(first + WARP, stop)):
                elsewhere = peek(kinds, peek(waits, other))
                if not (mask >> (other - first)) & 1 or peek(ended, other) != RUNS or elsewhere in (SPIN, POLL):
                    continue  # what looks again may come yet
                if not _together(kinds, site, peek(waits, other)):
                    return -_fault(env, F_COLLECTIVE, t, site, other, peek(waits, other))
                if peek(masks, other) != mask:
                    return -_fault(env, F_OTHER_MASK, t, site, other, site)
        beyond = beyond or peek(kinds, site) >= POLL
        if waiting < 0:
            waiting = t
    if waiting < 0:
        return 1
    if beyond:
        return 2
    site = peek(waits, waiting)
    for t in range(start, stop):
        if peek(waits, t) != site and peek(ended, t) != RETURNED:
            return -_fault(env, F_BARRIER, waiting, site, t, peek(waits, t))
    return _release_barrier(env, peek(kinds, site), waits, start, stop)


@njit
def complete_barriers(env, kinds, waits, threads, of_block):
    """Every thread waits or has ended. Release the barriers of the blocks that run together, the cluster's, the grid's: 0 if any
    was, 1 when every thread has ended, 2 when threads wait for a condition or spin; otherwise minus a fault."""
    released, over = False, True
    for start in range(0, threads, of_block):
        outcome = _complete_block(env, kinds, waits, start, min(start + of_block, threads))
        if outcome < 0:
            return outcome
        released, over = released or outcome == 0, over and outcome == 1
    if released or over:
        return I64(over)
    first: Any = I64(-1)
    for t in range(threads):
        kind = peek(kinds, peek(waits, t))
        if kind in (SPIN, POLL):
            return I64(2)
        if first < 0 and kind in (AT_CLUSTER, AT_GRID):
            first = t
    site = peek(waits, first)
    for t in range(threads):
        if _holds_up(kinds, peek(kinds, site), peek(waits, t), t % of_block == 0):
            return -_fault(env, F_BARRIER, first, site, t, peek(waits, t))
    for start in range(0, threads, of_block):
        _release_barrier(env, I64(0), waits, start, min(start + of_block, threads))
    if peek(kinds, site) == AT_GRID:
        poke(env, GRID_EPOCH, peek(env, INTERVALS) - threads // of_block)
    return I64(0)


@njit
def _holds_up(kinds, barrier, site, leads):
    """Whether a barrier of the cluster or the grid is held up by a thread at ``site``, 0 if it has ended; ``leads``: it is the
    first of its block."""
    return (barrier == AT_GRID and leads) if site == 0 else peek(kinds, site) != barrier


@njit
def look_again(env, kinds, waits, threads, lazy, patience, random):
    """Release threads that wait for a condition: all, or if ``lazy`` is a warp's number every other warp by chance, and that one
    in one of ``patience`` cases, in none if that is 0."""
    for first in range(0, threads, WARP):
        slow = first == lazy * WARP
        if lazy >= 0 and ((slow and patience == 0) or next_random(random, patience if slow else 2) != 0):
            continue
        for t in range(first, min(first + WARP, threads)):
            if peek(waits, t) != 0 and peek(kinds, peek(waits, t)) == POLL:
                poke(waits, t, 0)
    return 0


@njit
def take_turns(env, kinds, waits, threads):
    """Let the threads go on that wait for nothing, at a turn of a loop: how many."""
    count = I64(0)
    for t in range(threads):
        if peek(waits, t) != 0 and peek(kinds, peek(waits, t)) == SPIN:
            if count == 0:  # for the fault, if it turns out to be one
                poke(env, FAULT_A, t)
                poke(env, FAULT_B, peek(waits, t))
            poke(waits, t, 0)
            count += 1
    return count


@njit
def state_of(address, size):
    """A number for the bytes of a thread."""
    found = numba.uint64(1469598103934665603)
    for k in range(size // 8):
        found = (found ^ numba.uint64(peek(address, k))) * numba.uint64(1099511628211)
    return I64(found | numba.uint64(1))


@njit
def never_true(env, kinds, waits, threads):
    """The fault of the first thread whose condition can't come true any more."""
    for t in range(threads):
        if peek(waits, t) != 0 and (peek(kinds, peek(waits, t)) == POLL or peek(kinds, peek(waits, t)) == SPIN):
            return _fault(env, F_NEVER, t, peek(waits, t), 0, 0)
    return I64(0)

"""Runs every lane of every warp of every block, from wait to wait. Compiled once for all kernels, and kept on disk.

A thread is a generator's struct (see threads.py) that :func:`resume_thread` runs to its next site; lanes of a warp run one after
the other.
"""

from __future__ import annotations

import threading
import zlib
from pathlib import Path

from .barriers import (
    ARENA,
    ARENA_BYTES,
    BLOCK_EPOCH,
    BLOCK_X,
    BLOCK_Y,
    BLOCK_Z,
    CLUSTER_ARENA,
    DIM_X,
    DIM_Y,
    DIM_Z,
    ENDED,
    EPOCH,
    EPOCHS,
    F_NEVER,
    FAULT,
    FIRST_BLOCK,
    GRID_THREAD,
    GRID_X,
    GRID_Y,
    GRID_Z,
    I64,
    LOCAL_BYTES,
    LOCALS,
    MASKS,
    PADDED,
    PASSED,
    PROGRESS,
    PROVES,
    RETURNED,
    RUNS,
    SPAN,
    SPIN,
    SPINS,
    THREAD,
    TOGETHER,
    WARP,
    complete_barriers,
    complete_collectives,
    look_again,
    never_true,
    next_interval,
    next_random,
    state_of,
    take_turns,
)
from .environment import Env
from .memory import copy_bytes, fill_bytes
from .ordering import forget
from .threads import resume_thread
from .words import njit, peek, poke, tick

# Numba's file cache looks at this file alone: what it kept is refused when the files below have changed since.
LAYOUT_FILES = ("environment.py", "words.py", "memory.py", "threads.py", "ordering.py", "barriers.py", "scheduler.py")
LAYOUT = zlib.crc32(b"".join((Path(__file__).parent / f).read_bytes() for f in LAYOUT_FILES))
LAYOUT_WORD = int(Env.LAYOUT)
STALE = -1
SLOTS = 8  # states that are kept of a thread, each of some of the places where it takes turns


@njit
def enter_block(env, block):
    """Make block ``block`` of those that run together the one that runs."""
    number = peek(env, FIRST_BLOCK) + block
    across, down = peek(env, GRID_X), peek(env, GRID_Y)
    poke(env, BLOCK_X, number % across)
    poke(env, BLOCK_Y, number // across % down)
    poke(env, BLOCK_Z, number // (across * down))
    poke(env, ARENA, peek(env, CLUSTER_ARENA) + block * peek(env, SPAN))
    poke(env, EPOCH, peek(peek(env, EPOCHS), 2 * block))
    poke(env, BLOCK_EPOCH, peek(peek(env, EPOCHS), 2 * block + 1))


@njit
def _run_warp(env, resume, states, size, kinds, waits, first, count, random):
    """Run each lane that does not wait to its next site or its end: 0, or what a check found."""
    ended, base, spins = peek(env, ENDED), peek(env, FIRST_BLOCK) * peek(env, PADDED), peek(env, SPINS)
    if peek(env, TOGETHER) > 1:
        enter_block(env, first // peek(env, PADDED))
    turn = next_random(random, count) if peek(random, 0) != 0 else I64(0)
    backwards = peek(random, 0) != 0 and next_random(random, 2) == 1
    for k in range(count):
        lane = (turn + k) % count
        t = first + (count - 1 - lane if backwards else lane)
        if peek(waits, t) == 0 and peek(ended, t) == RUNS:
            poke(env, THREAD, t)
            poke(env, GRID_THREAD, base + t)
            site = resume_thread(resume, states + t * size)
            if peek(env, FAULT) != 0:
                return peek(env, FAULT)
            poke(waits, t, site)
            if site == 0 and peek(ended, t) == RUNS:
                poke(ended, t, RETURNED)
            if spins != 0:
                state = state_of(states + t * size, size) if site != 0 and peek(kinds, site) == SPIN else I64(0)
                kept = t * SLOTS + site % SLOTS
                if state == 0 or state != peek(spins, kept):
                    poke(spins, kept, state)
                    poke(env, PROGRESS, peek(env, PROGRESS) + 1)
    return 0


@njit
def _run_blocks(env, resume, states, size, kinds, waits, threads, random):
    """Run the blocks of ``threads`` threads that run together to the end: 0 or a fault. ``waits``: each thread's site, 0 while it
    can run."""
    together = peek(env, TOGETHER)
    of_block = peek(env, PADDED) if together > 1 else threads
    warps = (threads + WARP - 1) // WARP
    blocked = waits + threads * 8  # a word a warp: 1 when no lane of it can go on by itself
    lazy, patience = I64(-1), I64(0)
    if together > 1 and peek(random, 0) != 0:
        lazy, patience = next_random(random, warps), next_random(random, 2) * 16
    some, everyone = I64(-1), I64(-1)  # conditions that had come true when some threads, and when all, looked at theirs last
    before = I64(-1)  # progress when all threads in loops that may spin began their turn before this
    while True:
        for w in range(warps):
            poke(blocked, w, 0)
        left = warps
        at = I64(0)
        while left > 0:
            tick(env)
            if peek(random, 0) != 0:
                at = next_random(random, warps)
            while peek(blocked, at) != 0:
                at = (at + 1) % warps
            first = at * WARP
            count = min(I64(WARP), threads - first)
            fault = _run_warp(env, resume, states, size, kinds, waits, first, count, random)
            if fault != 0:
                return fault
            released = complete_collectives(env, kinds, waits, first, count)
            if released < 0:
                return -released
            if released == 0:
                poke(blocked, at, 1)
                left -= 1
        outcome = complete_barriers(env, kinds, waits, threads, of_block)
        if outcome < 0:
            return -outcome
        if outcome == 1:
            return I64(0)
        spinning = take_turns(env, kinds, waits, threads) if peek(env, SPINS) != 0 else I64(0)
        passed, progress = peek(env, PASSED), peek(env, PROGRESS)
        if outcome == 0:
            some, everyone = I64(-1), I64(-1)
        elif spinning == 0 and passed == everyone:
            return never_true(env, kinds, waits, threads)
        else:
            all_look = lazy < 0 or passed == some
            everyone = passed if all_look else I64(-1)
            some = passed
            look_again(env, kinds, waits, threads, I64(-1) if all_look else lazy, patience, random)
        if outcome == 2 and spinning > 0 and progress == before and peek(env, PROVES) != 0:
            poke(env, FAULT, F_NEVER)
            return I64(F_NEVER)
        before = progress


@njit(cache=True, nogil=True)
def _run_grid(env, resume, image, first_argument, states, size, kinds, waits, random):
    """Run a launch: 0, or the fault that is described in the environment.

    ``image``: a thread not yet started, ``size`` bytes, its thread number at offset ``first_argument``; ``states``: room for
    one such struct a thread; ``kinds``: the sites' kinds; ``waits``: one word a thread and one a warp; ``random``: one word,
    the schedule's random state, 0 for threads in order.
    """
    if peek(env, LAYOUT_WORD) != LAYOUT:
        return I64(STALE)
    of_block = peek(env, DIM_X) * peek(env, DIM_Y) * peek(env, DIM_Z)
    blocks, padded = peek(env, GRID_X) * peek(env, GRID_Y) * peek(env, GRID_Z), peek(env, PADDED)
    for number in range(0, blocks, peek(env, TOGETHER)):
        together = min(peek(env, TOGETHER), blocks - number)
        threads = of_block if peek(env, TOGETHER) == 1 else together * padded
        poke(env, FIRST_BLOCK, number)
        for block in range(together):
            next_interval(env, block * padded)
            poke(peek(env, EPOCHS), 2 * block + 1, peek(env, EPOCH))
            fill_bytes(peek(env, CLUSTER_ARENA) + block * peek(env, SPAN), peek(env, ARENA_BYTES))
        enter_block(env, I64(0))
        forget(env, I64(0), threads)
        fill_bytes(peek(env, LOCALS), peek(env, LOCAL_BYTES) * threads)
        for t in range(threads):
            copy_bytes(states + t * size, image, size)
            poke(states + t * size + first_argument, 0, t)
            poke(waits, t, 0)
            if peek(env, SPINS) != 0:
                for kept in range(t * SLOTS, (t + 1) * SLOTS):
                    poke(peek(env, SPINS), kept, 0)
            poke(peek(env, ENDED), t, RUNS if t % padded < of_block else RETURNED)
            poke(peek(env, MASKS), t, 0)
        fault = _run_blocks(env, resume, states, size, kinds, waits, threads, random)
        if fault != 0:
            return fault
    return I64(0)


_compiles = threading.Lock()


def run_grid(*words: int) -> int:
    """Run a launch; the arguments and the outcome are :func:`_run_grid`'s. What was kept and is stale is compiled anew."""
    outcome = _run_grid(*words)
    if outcome != STALE:
        return outcome
    with _compiles:
        outcome = _run_grid(*words)
        if outcome == STALE:
            _run_grid.recompile()
            outcome = _run_grid(*words)
    return outcome

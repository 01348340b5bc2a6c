"""Runs every lane of every warp of every block, from wait to wait. Compiled once for all kernels, and kept on disk.

A thread is a generator's struct (see threads.py) that :func:`resume_thread` runs to its next site; lanes of a warp run one after
the other.
"""

from __future__ import annotations

import functools
import zlib
from pathlib import Path
from typing import Any

from .barriers import (
    ARENA,
    ARENA_BYTES,
    BLOCK_BASE,
    BLOCK_EPOCH,
    BLOCK_X,
    BLOCK_Y,
    BLOCK_Z,
    CLUSTER,
    CLUSTER_ARENA,
    CLUSTER_X,
    DIM_X,
    DIM_Y,
    DIM_Z,
    ENDED,
    EPOCH,
    FAULT,
    GRID_THREAD,
    GRID_X,
    GRID_Y,
    GRID_Z,
    I64,
    LOCAL_BYTES,
    LOCALS,
    PADDED,
    PASSED,
    RETURNED,
    RUNS,
    THREAD,
    WARP,
    complete_barrier,
    complete_cluster,
    complete_collectives,
    look_again,
    never_true,
    next_random,
)
from .environment import BLOCK_SPAN, Env
from .memory import copy_bytes, fill_bytes
from .threads import resume_thread
from .words import njit, peek, poke

# Numba's file cache looks at this file alone: what it kept is refused when the files below have changed since.
LAYOUT_FILES = ("environment.py", "words.py", "memory.py", "threads.py", "barriers.py", "scheduler.py")
LAYOUT = zlib.crc32(b"".join((Path(__file__).parent / f).read_bytes() for f in LAYOUT_FILES))
LAYOUT_WORD = int(Env.LAYOUT)
STALE = -1


@njit
def _run_warp(env, resume, states, size, waits, first, count, random):
    """Run each lane that does not wait to its next site or its end: 0, or what a check found."""
    ended, base = peek(env, ENDED), peek(env, BLOCK_BASE)
    if peek(env, CLUSTER) > 1:
        block = first // peek(env, DIM_X)
        poke(env, BLOCK_X, peek(env, CLUSTER_X) + block)
        poke(env, ARENA, peek(env, CLUSTER_ARENA) + block * BLOCK_SPAN)
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
    return 0


@njit
def _run_block(env, resume, states, size, kinds, waits, random):
    """Run one block, or a cluster's, to the end: 0 or a fault. ``waits``: each thread's site, 0 while it can run."""
    cluster = peek(env, CLUSTER)
    threads = peek(env, DIM_X) * peek(env, DIM_Y) * peek(env, DIM_Z) * cluster
    warps = (threads + WARP - 1) // WARP
    blocked = waits + threads * 8  # a word a warp: 1 when no lane of it can go on by itself
    lazy, patience = I64(-1), I64(0)
    if cluster > 1 and peek(random, 0) != 0:
        lazy, patience = next_random(random, warps), next_random(random, 2) * 16
    some, everyone = I64(-1), I64(-1)  # conditions that had come true when some threads, and when all, looked at theirs last
    while True:
        for w in range(warps):
            poke(blocked, w, 0)
        left = warps
        at = I64(0)
        while left > 0:
            if peek(random, 0) != 0:
                at = next_random(random, warps)
            while peek(blocked, at) != 0:
                at = (at + 1) % warps
            first = at * WARP
            count = min(I64(WARP), threads - first)
            fault = _run_warp(env, resume, states, size, waits, first, count, random)
            if fault != 0:
                return fault
            released = complete_collectives(env, kinds, waits, first, count)
            if released < 0:
                return -released
            if released == 0:
                poke(blocked, at, 1)
                left -= 1
        outcome = complete_cluster(env, kinds, waits, threads) if cluster > 1 else complete_barrier(env, kinds, waits, threads)
        if outcome < 0:
            return -outcome
        if outcome == 1:
            return I64(0)
        passed = peek(env, PASSED)
        if outcome == 0:
            some, everyone = I64(-1), I64(-1)
        elif passed == everyone:
            return never_true(env, kinds, waits, threads)
        else:
            all_look = lazy < 0 or passed == some
            everyone = passed if all_look else I64(-1)
            some = passed
            look_again(env, kinds, waits, threads, I64(-1) if all_look else lazy, patience, random)


@njit(cache=True, nogil=True)
def _run_grid(env, resume, image, first_argument, states, size, kinds, waits, random):
    """Run a launch: 0, or the fault that is described in the environment.

    ``image``: a thread not yet started, ``size`` bytes, its thread number at offset ``first_argument``; ``states``: room for
    one such struct a thread; ``kinds``: the sites' kinds; ``waits``: one word a thread and one a warp; ``random``: one word,
    the schedule's random state, 0 for threads in order.
    """
    if peek(env, LAYOUT_WORD) != LAYOUT:
        return I64(STALE)
    cluster = peek(env, CLUSTER)
    threads = peek(env, DIM_X) * peek(env, DIM_Y) * peek(env, DIM_Z) * cluster
    for z in range(peek(env, GRID_Z)):
        for y in range(peek(env, GRID_Y)):
            for x in range(0, peek(env, GRID_X), cluster):
                poke(env, BLOCK_BASE, (x + peek(env, GRID_X) * (y + peek(env, GRID_Y) * z)) * peek(env, PADDED))
                poke(env, BLOCK_X, x)
                poke(env, CLUSTER_X, x)
                poke(env, BLOCK_Y, y)
                poke(env, BLOCK_Z, z)
                poke(env, EPOCH, peek(env, EPOCH) + 1)
                poke(env, BLOCK_EPOCH, peek(env, EPOCH))
                for block in range(cluster):
                    fill_bytes(peek(env, CLUSTER_ARENA) + block * BLOCK_SPAN, peek(env, ARENA_BYTES))
                fill_bytes(peek(env, LOCALS), peek(env, LOCAL_BYTES) * threads)
                for t in range(threads):
                    copy_bytes(states + t * size, image, size)
                    poke(states + t * size + first_argument, 0, t)
                    poke(waits, t, 0)
                    poke(peek(env, ENDED), t, RUNS)
                fault = _run_block(env, resume, states, size, kinds, waits, random)
                if fault != 0:
                    return fault
    return I64(0)


@functools.cache
def _compiled_anew() -> Any:
    return njit(nogil=True)(_run_grid.py_func)


def run_grid(*words: int) -> int:
    """Run a launch; the arguments and the outcome are :func:`_run_grid`'s."""
    outcome = _run_grid(*words)
    return _compiled_anew()(*words) if outcome == STALE else outcome

"""Runs a kernel without waits: each thread to its end, one after the other, block after block."""

from __future__ import annotations

from numba import int64

from .environment import Env
from .memory import fill_bytes
from .ordering import forget
from .words import njit, peek, poke, tick

DIM_X, DIM_Y, DIM_Z = int(Env.DIM_X), int(Env.DIM_Y), int(Env.DIM_Z)
GRID_X, GRID_Y, BLOCKS = int(Env.GRID_X), int(Env.GRID_Y), int(Env.BLOCKS)
BLOCK_X, BLOCK_Y, BLOCK_Z = int(Env.BLOCK_X), int(Env.BLOCK_Y), int(Env.BLOCK_Z)
EPOCH, BLOCK_EPOCH = int(Env.EPOCH), int(Env.BLOCK_EPOCH)
ARENA, ARENA_BYTES, LOCALS, LOCAL_BYTES = int(Env.ARENA), int(Env.ARENA_BYTES), int(Env.LOCALS), int(Env.LOCAL_BYTES)
ORDER, THREAD, GRID_THREAD, PADDED = int(Env.ORDER), int(Env.THREAD), int(Env.GRID_THREAD), int(Env.PADDED)
BLOCK_BASE, FAULT = int(Env.BLOCK_BASE), int(Env.FAULT)

# Apart from the kernel, all that is compiled for each.
TEMPLATE = """
def run_plain(env, {arguments}):
    block = 0
    threads = enter_block(env, block)
    while threads > 0:
        turn = 0
        while turn < threads:
            kernel(enter_thread(env, turn), env, {borrowed})
            if not goes_on(env):
                return
            turn += 1
        block += 1
        threads = enter_block(env, block)
"""


@njit
def enter_block(env, block):
    """Make a block the one that runs: how many threads it has, none where there is no such block."""
    if block >= peek(env, BLOCKS):
        return int64(0)
    across, down, threads = peek(env, GRID_X), peek(env, GRID_Y), peek(env, DIM_X) * peek(env, DIM_Y) * peek(env, DIM_Z)
    poke(env, BLOCK_X, block % across)
    poke(env, BLOCK_Y, block // across % down)
    poke(env, BLOCK_Z, block // (across * down))
    poke(env, BLOCK_BASE, block * peek(env, PADDED))
    poke(env, EPOCH, peek(env, EPOCH) + 1)
    poke(env, BLOCK_EPOCH, peek(env, EPOCH))
    fill_bytes(peek(env, ARENA), peek(env, ARENA_BYTES))
    fill_bytes(peek(env, LOCALS), peek(env, LOCAL_BYTES) * threads)
    forget(env, int64(0), threads)
    return threads


@njit
def enter_thread(env, turn):
    """The thread whose turn it is in the block that runs."""
    thread = peek(peek(env, ORDER), turn)
    poke(env, THREAD, thread)
    poke(env, GRID_THREAD, peek(env, BLOCK_BASE) + thread)
    return thread


@njit
def goes_on(env):
    """After a thread: whether another may run."""
    tick(env)
    return peek(env, FAULT) == 0

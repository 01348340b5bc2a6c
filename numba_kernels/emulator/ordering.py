"""What orders accesses of threads that share no barrier: fences with atomics, locks, barriers of the grid."""

from __future__ import annotations

from .environment import Env
from .words import njit, peek

GRID_EPOCH = int(Env.GRID_EPOCH)


@njit
def is_ordered(env, thread, interval, clock):
    """Whether an access (grid thread, barrier interval, clock) comes before the thread that runs now by such means."""
    return interval <= peek(env, GRID_EPOCH)

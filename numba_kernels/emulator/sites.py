"""The places where threads wait for each other, and the faults that a launch can report: plain numbers in compiled code."""

from __future__ import annotations

import enum
from typing import NamedTuple

from .locations import Location


class Kind(enum.IntEnum):
    """What a site does: wait for the block (up to ``BARRIER_OR``), for the lanes named in a mask, for a condition, or for all
    threads of the cluster."""

    END = 0
    BARRIER = 1
    BARRIER_COUNT = 2
    BARRIER_AND = 3
    BARRIER_OR = 4
    SYNCWARP = 5
    SHUFFLE = 6
    ALL = 7
    ANY = 8
    BALLOT = 9
    POLL = 10
    CLUSTER = 11


class Site(NamedTuple):
    """One collective in the rewritten kernel. An inlined device function has sites of its own at each place it is called."""

    kind: Kind
    call: str  # as the source writes it: "cuda.syncthreads"
    location: Location


class Fault(enum.IntEnum):
    """What the driver or a check found; the meaning of the environment's words FAULT_A to FAULT_D stands beside each."""

    NONE = 0
    BARRIER = 1  # A thread that waits at a barrier, B its site, C thread that does not, D its site (0: at its end)
    COLLECTIVE = 2  # A thread that waits, B its site, C thread named in its mask, D that thread's site (0: at its end)
    OTHER_MASK = 3  # A thread that waits, B its site, C thread at the same site with another mask
    NOT_IN_MASK = 4  # A thread, B its site
    SOURCE = 5  # A thread, B its site, C the lane it reads
    UNINITIALIZED = 6  # A byte offset in shared memory
    RACE = 7  # A thread that touched the element before, B its location, C 2 * it wrote + this one writes, D its block
    INDEX = 8  # A index, B extent, C axis
    NEVER = 9  # A thread whose condition can't come true any more, B its site

"""The numbers that Python and compiled code agree on.

A launch's state lies in one array of int64, the *environment*, whose address each thread carries.
"""

from __future__ import annotations

import enum


class Env(enum.IntEnum):
    """Numbers of the environment's words. Addresses are bytes in this process."""

    BLOCK_X = 0
    BLOCK_Y = 1
    BLOCK_Z = 2
    GRID_X = 3
    GRID_Y = 4
    GRID_Z = 5
    DIM_X = 6
    DIM_Y = 7
    DIM_Z = 8
    THREAD = 9  # linear number of the thread that runs
    LOCATION = 10  # number of the source location that runs, see Program.locations
    ARENA = 11  # address of the block's shared memory
    LOCALS = 12  # address of the threads' local memory
    LOCAL_BYTES = 13  # bytes of local memory a thread
    # Addresses of one int64 a thread: what it asks of the collective where it waits, and what it is told.
    MASKS = 14  # after a collective its mask, with its site in the upper half
    VALUES = 15
    SOURCES = 16
    ANSWERS = 17
    ENDED = 18
    ORDER = 19  # address of the order in which threads run (plain kernels)
    FAULT = 20  # what went wrong (Fault), and four words about it
    FAULT_A = 21
    FAULT_B = 22
    FAULT_C = 23
    FAULT_D = 24
    ARENA_BYTES = 25
    EPOCH = 26  # barrier interval that runs, counted over the launch (full check)
    BLOCK_EPOCH = 27  # the first interval of this block
    CELLS = 28  # address of the cells of the block's shared memory, see races.py
    SHIFT = 29  # log2 of the bytes that a cell stands for
    SEEN = 30  # address of the warps' vector clocks
    REGIONS = 31  # address of the table of global arrays
    REGION_COUNT = 32
    DYNAMIC = 33  # where dynamic shared memory starts in the arena
    LAYOUT = 34  # digest of the files that compiled schedulers depend on
    TOGETHER = 35  # blocks that run together; the number in the grid of the first, and the address of its shared memory
    FIRST_BLOCK = 36
    CLUSTER_ARENA = 37
    PASSED = 38  # conditions that have come true
    FAULT_AT = 40  # the location of the access that a fault is about
    GRID_THREAD = 41  # number in the grid of the thread that runs: its block's number times PADDED, plus its own
    PADDED = 42  # threads of a block, rounded up to whole warps
    GRID_EPOCH = 43  # the last interval that a barrier of the grid ended
    NOTE_A = 44  # two threads wrote the same value, in no order: grid thread and location of each
    NOTE_B = 45
    NOTE_C = 46
    NOTE_D = 47
    BLOCK_BASE = 49  # number in the grid of the block's first thread
    STRICT = 48  # 1: that is an error
    SPAN = 50  # bytes between the shared memories of blocks that run together
    EPOCHS = 51  # address of two words for each of them: EPOCH and BLOCK_EPOCH
    INTERVALS = 52  # barrier intervals so far, of all blocks
    PROGRESS = 53  # atomics that changed memory, waits that were reached, turns of a loop that left a thread in another state
    SPINS = 54  # address of some words a thread: what its state was when it took its last turns in loops that may spin
    PROVES = 55  # 1: loops that may spin write no memory but by atomics, so that a turn without progress is the last
    ATOMIC_NOW = 56  # 1: accesses are those of an atomic
    POOL = 57  # address of the vectors of ordering.py (0: none), bytes used, bytes in all, bytes of one
    POOL_USED = 58
    POOL_END = 59
    VECTOR = 60
    BLOCKS = 61  # blocks of the grid
    RELEASERS = 62  # threads that have a number of their own in vectors
    IDS = 63  # address of that number of each thread of the grid
    OWN = 64  # address of each thread's vector, of each block's
    OF_BLOCK = 65
    FENCED = 66  # address of what each thread knew at its last fence
    PLACES = 67  # address of a table: address of an atomic, its vector
    TICKS = 68  # turns until LOOK is called, which sets STOPPED where the user wants the launch to end
    LOOK = 69
    STOPPED = 70
    SIZE = 80


BLOCK_SPAN = 1 << 18  # bytes between the shared memories of a cluster's blocks
MOST_BLOCKS = 16  # of a cluster; the first one's shared memory lies at a multiple of BLOCK_SPAN * MOST_BLOCKS
BLOCKS_AT = BLOCK_SPAN - 8  # where, from there, a word says how many blocks there are


class Kind(enum.IntEnum):
    """What a site waits for: the block (up to ``BARRIER_OR``), the lanes named in a mask, a condition, or all threads of the
    cluster or of the
    grid."""

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
    MATCH_ANY = 10
    MATCH_ALL = 11
    ACTIVE = 12  # which lanes of the warp wait at this site, once none runs
    POLL = 13
    CLUSTER = 14
    SPIN = 15  # nothing, but lets others run: a turn of a loop that may spin, nanosleep
    GRID = 16  # all threads of the grid


class Fault(enum.IntEnum):
    """What the scheduler or a check found; the meaning of the environment's words FAULT_A to FAULT_D stands beside each."""

    NONE = 0
    BARRIER = 1  # A thread that waits at a barrier, B its site, C thread that does not, D its site (0: it has ended)
    COLLECTIVE = 2  # A thread that waits, B its site, C thread named in its mask, D that thread's site
    OTHER_MASK = 3  # A thread that waits, B its site, C thread at the same site with another mask
    NOT_IN_MASK = 4  # A thread, B its site
    SOURCE = 5  # A thread, B its site, C the lane it reads
    UNINITIALIZED = 6  # A byte offset in shared memory
    RACE = 7  # A grid thread that touched the bytes before, B its location, C what it did << 2 | what this one does (races.py)
    INDEX = 8  # A index, B extent, C axis
    POOL = 11  # ordering.py needs more memory
    GRAIN = 10  # an access that covers cells in part: the launch is repeated with a cell a byte
    NEVER = 9  # A thread whose condition can't come true any more, B its site

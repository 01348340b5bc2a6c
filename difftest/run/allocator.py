"""What C's allocator does with memory that is freed.

By itself glibc gives the tensors of most cases back to the system, which clears every page before it hands it out again: a fifth
of a run's time. In a process that compares, such memory is kept for the next case.
"""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's names for what mallopt sets
LARGEST = 32 << 20  # bytes of a block that is kept: the most that glibc takes
KEPT = 2 * LARGEST  # bytes at the heap's end that are kept


def keep_freed() -> bool:
    """Has this process, and those forked from it, keep what is freed. False where C's library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST)) and bool(mallopt(TRIM_THRESHOLD, KEPT))

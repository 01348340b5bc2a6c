"""One kernel for each tool of compute-sanitizer, wrong on purpose in the way that the tool looks for.

python tests/sanitizer/planted.py memcheck|racecheck|initcheck|synccheck runs one on a GPU. A sanitizer that says nothing of it
says nothing of the project's kernels either. The emulator is held to the same kernels in test_planted.py.
"""

from __future__ import annotations

import sys

import numpy as np
from numba import cuda, int32

THREADS = 64


def writes_one_element_too_many(x):
    """Thread 0 writes one element past the array."""
    t = cuda.threadIdx.x
    x[t] = t
    if t == 0:
        x[x.size] = 7  # planted


def reads_a_neighbour_without_a_barrier(x):
    """Each thread reads what a thread of the other warp writes, with no barrier between."""
    t = cuda.threadIdx.x
    row = cuda.shared.array(THREADS, int32)
    row[t] = t
    x[t] = row[THREADS - 1 - t]  # planted


def adds_to_what_nobody_wrote(x):
    """Reads each element of memory that was never written."""
    x[cuda.threadIdx.x] += 1  # planted


def half_the_block_skips_the_barrier(x):
    """Half of the second warp waits at a barrier that the other half never comes to."""
    t = cuda.threadIdx.x
    if t < 48:
        cuda.syncthreads()  # planted
    x[t] = t


KERNELS = {
    "memcheck": writes_one_element_too_many,
    "racecheck": reads_a_neighbour_without_a_barrier,
    "initcheck": adds_to_what_nobody_wrote,
    "synccheck": half_the_block_skips_the_barrier,
}


def main(tool: str) -> None:
    """Runs the tool's kernel on the GPU, on memory that nothing was written to."""
    compiled = cuda.jit(KERNELS[tool], lineinfo=True)
    compiled[1, THREADS](cuda.device_array(THREADS, np.int32))
    cuda.synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])

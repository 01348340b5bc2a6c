"""Worker processes that start at once: forked from a server that has imported what they need. Imports nothing heavy itself.

A process with torch's threads in it may not fork; the server runs no thread.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, SpawnContext

from difftest import interrupts

# What a worker imports, some seconds of it. A module that can't be imported is left for the worker to complain of.
NEEDS = ("difftest.session", "difftest.numba_provider", "numba_kernels.replay", "numba_kernels.operators", "reference.providers")
# Libraries that start a thread for each core when they are imported start none with these.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def context() -> ForkServerContext | SpawnContext:
    """How workers are started: forked from the server, or anew (``spawn``) where the system has no fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(list(NEEDS))
    return found


def prepare() -> None:
    """Starts the server, which then imports on another core what this process has yet to import too. Idempotent."""
    if context().get_start_method() != "forkserver":
        return
    kept = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        with interrupts.ignored():  # Ctrl-C is this process's to handle
            forkserver.ensure_running()
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

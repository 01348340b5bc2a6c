"""What the emulator can find. Every error names the kernel, the source line and, where there is one, the block and the thread.

Imports nothing of the package.
"""

from __future__ import annotations

import os


class EmulatorError(RuntimeError):
    """An emulated kernel did something that is wrong on a GPU, or that the emulator cannot run.

    Attributes: ``kernel`` (function name), ``file`` and ``line`` (source position, ``line`` 0 where unknown), ``block``
    ((x, y, z) or None), ``thread`` (linear thread number in its block, or None), ``reason`` (one sentence), ``schedule_seed``
    (which repeats it; None: threads ran in order), ``others`` (file and line of what else took part: a race's other access).
    """

    def __init__(
        self,
        reason: str,
        *,
        kernel: str,
        file: str,
        line: int,
        block: tuple[int, int, int] | None = None,
        thread: int | None = None,
        schedule_seed: int | None = None,
        others: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.kernel, self.file, self.line = kernel, file, line
        self.block, self.thread, self.reason = block, thread, reason
        self.schedule_seed, self.others = schedule_seed, others
        place = f"{kernel}, {os.path.basename(file)}:{line}"
        if block is not None:
            place += f", block {block}"
        if thread is not None:
            place += f", thread {thread}"
        repeated = "" if schedule_seed is None else f" (schedule_seed={schedule_seed})"
        super().__init__(f"{place}: {reason}{repeated}")


class UnsupportedKernel(EmulatorError):
    """The source has a form that the emulator cannot rewrite. Raised before anything runs."""


class CompileError(EmulatorError):
    """Numba refused the rewritten kernel for these argument types; its own message is part of the reason."""


class DivergentBarrier(EmulatorError):
    """Some threads of the block wait at a barrier that others can never reach, or went around."""


class DivergentCollective(EmulatorError):
    """Lanes named in the mask of a shuffle or vote are not at that same site with that same mask; of a ``syncwarp``, at any."""


class NeverTrue(EmulatorError):
    """Threads wait for something, and no thread is left that could bring it about."""


class MaskError(EmulatorError):
    """A lane executes a warp collective without being in its mask, or reads a lane that takes no part in it."""


class OutOfBounds(EmulatorError):
    """An index lies outside its array."""


class UninitializedRead(EmulatorError):
    """Shared memory is read that nothing in this block has written (``check="full"``)."""


class DataRace(EmulatorError):
    """Two threads touch one element, one of them writing, with no barrier between (``check="full"``)."""


class CheckLimit(EmulatorError):
    """The full check needs more memory for its account than it takes."""


class KernelException(EmulatorError):
    """The kernel raised; the exception is the ``__cause__``."""

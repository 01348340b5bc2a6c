"""Kernels written in ``numba.cuda`` on a machine without a GPU: the same source, every lane of every warp, checked.

A kernel's source is rewritten into a Numba generator in which barriers, shuffles and votes are yields (rewriting/), and a
scheduler runs each thread from one wait to the next (scheduler.py).
"""

from .errors import (
    CheckLimit,
    CompileError,
    DataRace,
    DivergentBarrier,
    DivergentCollective,
    EmulatorError,
    KernelException,
    MaskError,
    NeverTrue,
    OutOfBounds,
    UninitializedRead,
    UnsupportedKernel,
)
from .launch import EmulatedKernel
from .program import emulate, emulating

__all__ = [
    "CheckLimit",
    "CompileError",
    "DataRace",
    "DivergentBarrier",
    "DivergentCollective",
    "EmulatedKernel",
    "EmulatorError",
    "KernelException",
    "MaskError",
    "NeverTrue",
    "OutOfBounds",
    "UninitializedRead",
    "UnsupportedKernel",
    "emulate",
    "emulating",
]

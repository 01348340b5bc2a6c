"""Fused norm and activation kernels in Numba-CUDA, for NumPy arrays and torch tensors, on the GPU or emulated on the CPU.

Imports neither torch nor Numba, and touches no CUDA, until the first call.
"""

import sys as _sys

import numpy as _np

if tuple(int(part) for part in _np.__version__.split(".")[:2]) >= (2, 5):
    raise ImportError(
        f"numba_kernels needs NumPy below 2.5, and {_np.__version__} is installed: numba-cuda 0.30.4 fails on it at the first "
        "kernel. Install one that works: pip install 'numpy<2.5'"
    )

from .operators import *  # noqa: F403
from .operators import __all__ as __all__
from .runtime import dispatch as _dispatch
from .runtime.ahead import warm_up as warm_up


def _register() -> None:
    """Define ``torch.ops.numba_kernels``; ``import numba_kernels.torch_ops`` does it at any time."""
    from . import torch_ops  # noqa: F401


if _sys.modules.get("torch") is not None:
    _register()
else:
    _dispatch.register_by(_register)

"""Fused norm and activation kernels in Numba-CUDA, for NumPy arrays and torch tensors, on the GPU or replayed on the CPU.

Imports neither torch nor the rooms beside it, and touches no CUDA until the first call.
"""

import sys as _sys

import numpy as _np

if tuple(int(part) for part in _np.__version__.split(".")[:2]) >= (2, 5):
    raise ImportError(
        f"numba_kernels needs NumPy below 2.5, and {_np.__version__} is installed: numba-cuda 0.30.4 fails on it at the first "
        "kernel. Install one that works: pip install 'numpy<2.5'"
    )

from .operators import (
    fused_add_rmsnorm,
    gelu_and_mul,
    gelu_tanh_and_mul,
    gemma_fused_add_rmsnorm,
    gemma_rmsnorm,
    rmsnorm,
    silu_and_mul,
)

__all__ = [
    "fused_add_rmsnorm",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "gemma_fused_add_rmsnorm",
    "gemma_rmsnorm",
    "rmsnorm",
    "silu_and_mul",
]

# Registers torch.ops.numba_kernels. With torch imported later, import numba_kernels.torch_ops.
if _sys.modules.get("torch") is not None:
    from . import torch_ops as _torch_ops  # noqa: F401

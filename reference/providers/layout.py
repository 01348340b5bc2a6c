"""What a foreign kernel needs of a tensor's memory: rows it can address, and vectors that are aligned.

A kernel that loads 16 bytes at an address that is no multiple of 16 kills the whole CUDA context, so the adapters ask
first.
"""

from __future__ import annotations

import math

import torch

from reference.providers.protocol import Refused


def as_rows(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """`tensor` (..., width) as a view (rows, width), never a copy: writes to it must reach the caller's memory.

    Raises Refused when the leading axes do not merge into one stride.
    """
    if tensor.ndim == 2:
        return tensor
    try:
        return tensor.view(-1, tensor.shape[-1])
    except RuntimeError:
        raise Refused(f"{name}: strides {tensor.stride()} of shape {tuple(tensor.shape)} are no two-axis view") from None


def vector_bytes(width: int, itemsize: int, most: int = 16) -> int:
    """The widest access, a power of two up to `most` bytes, that divides a row of `width` elements."""
    return math.gcd(most, width * itemsize)


def require_aligned(rows: torch.Tensor, name: str, bytes_: int) -> None:
    """Raises Refused unless the address of `rows` (rows, width) and its row stride are multiples of `bytes_`."""
    if rows.data_ptr() % bytes_:
        raise Refused(f"{name}: the address is not a multiple of {bytes_} bytes")
    if rows.ndim == 2 and rows.shape[0] > 1 and rows.stride(0) * rows.element_size() % bytes_:
        raise Refused(f"{name}: the row stride of {rows.stride(0)} elements is not a multiple of {bytes_} bytes")


def require_unit_stride(tensor: torch.Tensor, name: str) -> None:
    """Raises Refused unless neighbours in a row are neighbours in memory."""
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise Refused(f"{name}: the inner stride is {tensor.stride(-1)}, not 1")


def require_contiguous(tensor: torch.Tensor, name: str) -> None:
    """Raises Refused unless `tensor` is contiguous: for kernels that ignore strides."""
    if not tensor.is_contiguous():
        raise Refused(f"{name}: the kernel ignores strides and this tensor is not contiguous")


def require_rows(tensor: torch.Tensor, name: str) -> None:
    """Raises Refused for zero rows: for launchers that would ask for an empty grid, which is a CUDA error."""
    if tensor.numel() == 0:
        raise Refused(f"{name}: no rows, and the library launches an empty grid")


def require_dtype(tensor: torch.Tensor, name: str, dtype: torch.dtype) -> None:
    """Raises Refused unless `tensor` has `dtype`: for kernels that reinterpret whatever bytes they get."""
    if tensor.dtype is not dtype:
        raise Refused(f"{name}: the library takes {dtype} here, not {tensor.dtype}")

"""The checks every operator makes before anything is written. Each error names the argument, what it was and what is allowed."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from . import dispatch
from .arrays import CPU, Array, Rows, as_rows, overlap, same_memory

WIDEST = 2**30  # elements of a row: places in a row, and a little past its end, are 32-bit numbers
CODES = {"add_norm": ("R0W0", "R1W0", "R0W1", "R1W1"), "norm": ("W0", "W1"), "gated": ("S0", "S1")}


def check_contract(family: str, contract: Any) -> str:
    allowed = CODES[family]
    if not isinstance(contract, str) or contract not in allowed:
        raise ValueError(f"contract: {contract!r}; {', '.join(allowed)} are supported here")
    return contract


def check_eps(eps: Any) -> np.float32:
    """eps as the fp32 value that the kernel adds inside the root."""
    if isinstance(eps, bool) or not isinstance(eps, numbers.Real):
        raise TypeError(f"eps: {eps!r} of type {type(eps).__name__}; a real number is needed")
    try:
        value = float(eps)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or value < 0 or value > float(np.finfo(np.float32).max):
        raise ValueError(f"eps: {eps!r}; a finite fp32 number of at least 0 is needed")
    return np.float32(value)


def check_pdl(enable_pdl: Any) -> bool | None:
    if enable_pdl is not None and not isinstance(enable_pdl, bool):
        raise TypeError(f"enable_pdl: {enable_pdl!r}; None, True or False are allowed")
    return enable_pdl


def check_device(arrays: list[Array]) -> None:
    first = arrays[0]
    for other in arrays[1:]:
        if other.device != first.device:
            raise ValueError(
                f"{other.name}: on {_place(other.device)} while {first.name} is on {_place(first.device)}; one device is needed"
            )


def _place(device: int) -> str:
    return "the CPU" if device == CPU else f"cuda:{device}"


def check_same(array: Array, like: Array) -> None:
    """``array`` has the shape and dtype of ``like``."""
    if array.format != like.format:
        raise TypeError(f"{array.name}: {array.format} beside {like.name} in {like.format}; the same dtype is needed")
    if array.shape != like.shape:
        raise ValueError(f"{array.name}: shape {array.shape} beside {like.name} of shape {like.shape}; the same shape is needed")


def check_weight(weight: Array, like: Array) -> None:
    if weight.format not in (like.format, "fp32"):
        raise TypeError(f"weight: {weight.format} beside {like.name} in {like.format}; {like.format} or fp32 are supported")
    if weight.shape != (like.width,):
        raise ValueError(f"weight: shape {weight.shape}; ({like.width},) is needed, as {like.name} has rows of {like.width}")
    if like.width > 1 and weight.strides != (1,):
        raise ValueError(f"weight: stride {weight.strides[0]}; a contiguous vector (stride 1) is needed")


def half_width(width: int) -> int:
    """The output's width, of the gated forms' input."""
    if width % 2:
        raise ValueError(f"input: last axis of {width}; an even number is needed, gate and up side by side")
    return width // 2


def check_row_width(array: Array) -> None:
    if array.width == 0:
        raise ValueError(f"{array.name}: shape {array.shape} has rows of 0 elements; at least 1 is needed")
    if array.width > WIDEST:
        raise ValueError(f"{array.name}: rows of {array.width} elements; at most {WIDEST} are supported")


def writable_rows(array: Array) -> Rows:
    """The rows of an array that the operator writes: the caller's own memory, each element once."""
    if array.readonly:
        raise ValueError(f"{array.name}: read-only memory, but the operator writes to it")
    if dispatch.records(array.owner):
        raise ValueError(
            f"{array.name}: requires grad, and autograd can't record what the operator writes to it; call under torch.no_grad(), "
            f"or pass {array.name}.detach()"
        )
    rows = as_rows(array)
    if rows.count > 1 and rows.stride < rows.width:
        raise ValueError(
            f"{array.name}: rows of {rows.width} elements {rows.stride} apart overlap, but the operator writes to them"
        )
    return rows


def check_apart(written: Rows, other: Rows, *, may_be_same: bool = False) -> None:
    """``written`` shares no memory with ``other``, unless they are exactly the same rows and that is allowed."""
    if may_be_same and same_memory(written, other):
        return
    if overlap(written, other):
        allowed = f"; {other.array.name} itself is allowed, a part of it is not" if may_be_same else ""
        raise ValueError(f"{written.array.name}: overlaps {other.array.name} in memory{allowed}")

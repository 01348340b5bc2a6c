"""The checks every operator makes before anything is written. Each error names the argument, what it was and what is allowed."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from ..declarations import Flag, Number, Operator, Role
from . import dispatch
from .arrays import CPU, Array, Rows, as_rows, overlap, same_memory

WIDEST = 2**30  # elements of a row: places in a row, and a little past its end, are 32-bit numbers
LARGEST = float(np.finfo(np.float32).max)


def check_contract(operator: Operator, contract: Any) -> dict[str, int]:
    """The choice of each rounding."""
    if not isinstance(contract, str) or contract not in operator.codes:
        raise ValueError(f"contract: {contract!r}; {', '.join(operator.codes)} are supported here")
    return operator.choices(contract)


def check_number(number: Number, value: Any) -> int:
    """The bits of the fp32 value that the kernel gets."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        said = f"{value!r} of type" if isinstance(value, str | bool | complex) else "a value of type"
        raise TypeError(f"{number.name}: {said} {type(value).__name__}; a real number is needed")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    if not (math.isfinite(real) and number.least <= real and abs(real) <= LARGEST):
        least = f" of at least {number.least:g}" if math.isfinite(number.least) else ""
        raise ValueError(f"{number.name}: {value!r}; a finite fp32 number{least} is needed")
    rounded = np.float32(real)
    if real != 0 and rounded == 0:
        raise ValueError(f"{number.name}: {value!r}, which is 0 in fp32; 0, or a number that fp32 can hold, is needed")
    return int(rounded.view(np.uint32))


def check_flag(flag: Flag, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{flag.name}: {value!r}; True or False are allowed")
    return value


def check_pdl(enable_pdl: Any) -> bool | None:
    if enable_pdl is not None and not isinstance(enable_pdl, bool):
        raise TypeError(f"enable_pdl: {enable_pdl!r}; None, True or False are allowed")
    return enable_pdl


def check_tensors(operator: Operator, arrays: Mapping[str, Array]) -> None:
    """Device, dtype and shape of the operator's tensors, given by name."""
    like = arrays["input"]
    check_device(arrays)
    for tensor in operator.tensors[1:]:
        if tensor.role is Role.VECTOR:
            check_vector(arrays[tensor.name], like)
        else:
            check_same(arrays[tensor.name], like, like.shape)


def check_device(arrays: Mapping[str, Array]) -> None:
    first, *others = arrays.values()
    for other in others:
        if other.device != first.device:
            raise ValueError(
                f"{other.name}: on {_place(other.device)} while {first.name} is on {_place(first.device)}; one device is needed"
            )


def _place(device: int) -> str:
    return "the CPU" if device == CPU else f"cuda:{device}"


def check_same(array: Array, like: Array, shape: tuple[int, ...]) -> None:
    """``array`` has the dtype of ``like``, and this shape."""
    if array.format != like.format:
        raise TypeError(f"{array.name}: {array.format} beside {like.name} in {like.format}; the same dtype is needed")
    if array.shape != shape:
        raise ValueError(f"{array.name}: shape {array.shape} beside {like.name} of shape {like.shape}; {shape} is needed")


def check_vector(vector: Array, like: Array) -> None:
    """``vector`` has one element for each column of ``like``, in its dtype or fp32."""
    name = vector.name
    allowed = tuple(dict.fromkeys((like.format, "fp32")))
    if vector.format not in allowed:
        verb = "is" if len(allowed) == 1 else "are"
        raise TypeError(f"{name}: {vector.format} beside {like.name} in {like.format}; {' or '.join(allowed)} {verb} supported")
    if vector.shape != (like.width,):
        raise ValueError(f"{name}: shape {vector.shape}; ({like.width},) is needed, as {like.name} has rows of {like.width}")
    if like.width > 1 and vector.strides != (1,):
        raise ValueError(f"{name}: stride {vector.strides[0]}; a contiguous vector (stride 1) is needed")


def output_shape(operator: Operator, input: Array) -> tuple[int, ...]:
    """The shape of what the operator returns. ValueError where the input's rows have no two halves and it needs them."""
    *lead, width = input.shape
    if not operator.halves_input:
        return input.shape
    if width % 2:
        raise ValueError(f"input: last axis of {width}; an even number is needed, for gate and up")
    return (*lead, width // 2)


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
    if dispatch.is_closed(array.owner):
        raise ValueError(
            f"{array.name}: an inference tensor, which may not be written outside inference mode; call under "
            f"torch.inference_mode(), or pass {array.name}.clone()"
        )
    rows = as_rows(array)
    if rows.count > 1 and rows.stride < rows.width:
        raise ValueError(
            f"{array.name}: rows of {rows.width} elements {rows.stride} apart overlap, but the operator writes to them"
        )
    return rows


def check_apart(operator: Operator, rows: Mapping[str, Rows]) -> None:
    """What the operator writes shares no memory with another argument; ``out`` may be the input where their rows are alike."""
    for one, other in combinations(rows, 2):
        if other in operator.written:
            _check_apart(rows[other], rows[one], may_be_same=other == "out" and one == "input" and not operator.halves_input)
        elif one in operator.written:
            _check_apart(rows[one], rows[other], may_be_same=False)


def _check_apart(written: Rows, other: Rows, *, may_be_same: bool) -> None:
    if may_be_same and same_memory(written, other):
        return
    if overlap(written, other):
        allowed = f"; {other.array.name} itself is allowed, a part of it is not" if may_be_same else ""
        raise ValueError(f"{written.array.name}: overlaps {other.array.name} in memory{allowed}")

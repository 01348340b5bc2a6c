"""Other people's arrays, seen as one thing: an address, a shape, strides, a storage dtype and a device.

NumPy arrays and torch tensors are read directly (torch only if the caller has brought one); everything else comes through
``cuda.core``'s ``StridedMemoryView``, which speaks ``__cuda_array_interface__`` and DLPack.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..formats import BY_DTYPE, FORMATS

CPU = -1  # the device number of host memory


@dataclass(frozen=True, slots=True)
class Array:
    """One argument of an operator. Strides count elements; ``device`` is a CUDA ordinal or ``CPU``.

    ``stream`` is the handle of the stream that the array's producer works on (0: the legacy default stream).
    """

    name: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    format: str
    device: int
    stream: int
    readonly: bool
    owner: Any

    @property
    def itemsize(self) -> int:
        return FORMATS[self.format].itemsize

    @property
    def width(self) -> int:
        """Elements of one row: the last axis."""
        return self.shape[-1]


def format_of(name: str, dtype: Any) -> str:
    """The short name of a storage dtype. TypeError, naming the argument, for any other."""
    text = str(dtype).removeprefix("torch.")
    if text not in BY_DTYPE:
        *others, last = BY_DTYPE
        raise TypeError(f"{name}: dtype {text} is not supported; {', '.join(others)} and {last} are")
    return BY_DTYPE[text].name


def describe(name: str, value: Any) -> Array:
    """The argument ``name`` as an :class:`Array`. Raises TypeError for anything that is not a strided array of a known dtype."""
    if isinstance(value, np.ndarray):
        array = _from_numpy(name, value)
    elif hasattr(value, "data_ptr") and hasattr(value, "untyped_storage"):
        array = _from_torch(name, value)
    else:
        array = _from_protocol(name, value)
    if not array.shape:
        raise ValueError(f"{name}: a scalar has no rows; 1 axis or more is needed, the last one is the row")
    return array


def _from_numpy(name: str, value: np.ndarray) -> Array:
    if not value.dtype.isnative:
        raise TypeError(f"{name}: dtype {value.dtype}, whose byte order is not this machine's; pass its .astype(…)")
    kind = format_of(name, value.dtype)
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array, whose mask would be ignored; pass its .filled(…)")
    size = value.dtype.itemsize
    if value.ctypes.data % size:
        raise ValueError(f"{name}: memory at an address that is no multiple of {size}, the size of an element; pass its .copy()")
    if any(s % size for extent, s in zip(value.shape, value.strides, strict=True) if extent > 1):
        raise ValueError(f"{name}: strides {value.strides} in bytes are not whole elements of {size}; pass its .copy()")
    strides = tuple(s // size for s in value.strides)
    return Array(name, value.ctypes.data, value.shape, strides, kind, CPU, 0, not value.flags.writeable, value)


def _from_torch(name: str, value: Any) -> Array:
    kind = format_of(name, value.dtype)
    if value.layout.__repr__() != "torch.strided" or value.is_nested:
        raise TypeError(f"{name}: layout {'nested' if value.is_nested else value.layout}; a strided tensor is needed")
    if value.device.type not in ("cuda", "cpu"):
        raise TypeError(f"{name}: device {value.device}; cpu and cuda tensors are supported")
    if value.is_neg() or value.is_conj():
        raise TypeError(f"{name}: a lazily negated or conjugated tensor; call .resolve_neg() first")
    try:
        address = value.data_ptr()
    except RuntimeError:  # a fake or functional tensor's
        address = 0
    if address == 0 and value.numel():
        raise TypeError(f"{name}: a {type(value).__name__} without memory of its own; a tensor that holds its elements is needed")
    device, stream = CPU, 0
    if value.device.type == "cuda":
        from torch._C import _cuda_getCurrentRawStream as current_stream

        device = value.get_device()
        stream = current_stream(device)
    return Array(name, address, tuple(value.shape), value.stride(), kind, device, stream, False, value)


def _from_protocol(name: str, value: Any) -> Array:
    if not (hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack__")):
        raise TypeError(
            f"{name}: {type(value).__name__} is not an array; NumPy, torch, __cuda_array_interface__ and DLPack arrays are"
        )
    from cuda.core.utils import StridedMemoryView

    try:
        view = StridedMemoryView.from_any_interface(value, stream_ptr=-1)
    except (TypeError, ValueError, BufferError, NotImplementedError, RuntimeError) as error:
        raise TypeError(f"{name}: {type(value).__name__} can't be read as an array: {error}") from error
    kind = format_of(name, view.dtype)
    strides = view.strides or _contiguous(view.shape)
    device = view.device_id if view.is_device_accessible else CPU
    interface = getattr(value, "__cuda_array_interface__", {})
    stream = interface.get("stream") or 0
    return Array(name, view.ptr, tuple(view.shape), tuple(strides), kind, device, stream, view.readonly, value)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Rows:
    """An array as rows of equal width, one stride apart: what a kernel sees. Sizes in elements."""

    array: Array
    count: int
    width: int
    stride: int

    @property
    def extent(self) -> int:
        """Elements from the first of the first row to the last of the last."""
        return (self.count - 1) * self.stride + self.width if self.count else 0


def as_rows(array: Array) -> Rows:
    """Flatten the leading axes without a copy. Raises ValueError where the layout would need one, or rows are not contiguous."""
    *leading, width = array.shape
    *leading_strides, inner = array.strides
    count = 1
    for extent in leading:
        count *= extent
    if count == 0 or width == 0:
        return Rows(array, count, width, width)
    if width > 1 and inner != 1:
        raise ValueError(f"{array.name}: stride {inner} in the last axis; rows must be contiguous (stride 1)")
    axes = [(extent, stride) for extent, stride in zip(leading, leading_strides, strict=True) if extent > 1]
    for (_, outer), (extent, step) in pairwise(axes):
        if outer != extent * step:
            raise ValueError(
                f"{array.name}: shape {array.shape} with strides {array.strides} can't be viewed as rows without a copy"
            )
    stride = axes[-1][1] if axes else width
    if stride < 0:
        raise ValueError(f"{array.name}: negative stride {stride} between rows is not supported")
    return Rows(array, count, width, stride)


def overlap(a: Rows, b: Rows) -> bool:
    """Whether any element of ``a`` shares memory with one of ``b``: exact, whatever their strides."""
    if not (a.count and b.count and a.width and b.width) or a.array.device != b.array.device:
        return False
    few, many = sorted((a, b), key=lambda rows: rows.count)
    starts = few.array.address - many.array.address + np.arange(few.count, dtype=np.int64) * few.stride * few.array.itemsize
    length, other = few.width * few.array.itemsize, many.width * many.array.itemsize
    pitch = many.stride * many.array.itemsize
    if pitch == 0 or many.count == 1:
        return bool(((starts < other) & (starts + length > 0)).any())
    # Of the rows of `many` that end behind where a row of `few` starts, the first: does it start before that one's end?
    first = np.maximum((starts - other) // pitch + 1, 0)
    return bool(((first < many.count) & (first * pitch < starts + length)).any())


def same_memory(a: Rows, b: Rows) -> bool:
    """Whether ``a`` and ``b`` are the same rows at the same place."""
    return a.array.address == b.array.address and (a.count, a.width, a.stride) == (b.count, b.width, b.stride)

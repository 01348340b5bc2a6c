"""The storage dtypes by the short names the command line uses, and the bit view each is compared through.

Imports torch and nothing of the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch


@dataclass(frozen=True, slots=True)
class DType:
    """A storage dtype: its short name, torch's, the integer dtype of the same width, and the poison bit pattern.

    The poison is a quiet NaN with a payload that no arithmetic produces, so a copy of it is seen bit for bit, and a
    kernel that reads it shows a NaN.
    """

    name: str
    storage: torch.dtype
    bits: torch.dtype
    poison: int

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.storage.itemsize


DTYPES: Mapping[str, DType] = MappingProxyType(
    {
        d.name: d
        for d in (
            DType("fp16", torch.float16, torch.int16, 0x7EA5),
            DType("bf16", torch.bfloat16, torch.int16, 0x7FE5),
            DType("fp32", torch.float32, torch.int32, 0x7FE5A5A5),
        )
    }
)
_BY_TORCH = {d.storage: d for d in DTYPES.values()}


def of(tensor_dtype: torch.dtype) -> DType:
    """The DType of a torch dtype. TypeError for one that is not a storage dtype here."""
    try:
        return _BY_TORCH[tensor_dtype]
    except KeyError:
        raise TypeError(f"{tensor_dtype} is not one of {', '.join(DTYPES)}") from None


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bit patterns as signed integers of its own width; same shape, no copy."""
    return tensor.view(of(tensor.dtype).bits)


def hex_bits(value: torch.Tensor) -> str:
    """One element's bit pattern as text, `0x3f80`."""
    dtype = of(value.dtype)
    mask = (1 << (8 * dtype.itemsize)) - 1
    return f"0x{int(bits(value.reshape(1)).item()) & mask:0{2 * dtype.itemsize}x}"

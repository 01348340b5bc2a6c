"""The storage formats in one table: torch's dtype, the integers its bits are compared as, and where its numbers end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import dtype as TorchDtype


@dataclass(frozen=True, slots=True)
class Format:
    """A storage format.

    `bits`: the integer dtype of the same width. `fraction_bits`: explicit bits of the significand. `smallest_exponent`:
    that of the smallest normal number. `poison`: the bits of a quiet NaN with a payload that no arithmetic produces, so
    that a copy of it is seen bit for bit and a kernel that reads it shows a NaN.
    """

    name: str
    torch: TorchDtype
    bits: TorchDtype
    fraction_bits: int
    smallest_exponent: int
    poison: int

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.torch.itemsize

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return torch.finfo(self.torch).max


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        each.name: each
        for each in (
            Format("fp16", torch.float16, torch.int16, 10, -14, 0x7EA5),
            Format("bf16", torch.bfloat16, torch.int16, 7, -126, 0x7FE5),
            Format("fp32", torch.float32, torch.int32, 23, -126, 0x7FE5A5A5),
        )
    }
)
_BY_TORCH = {each.torch: each for each in FORMATS.values()}


def of(dtype: torch.dtype) -> Format:
    """The format of a torch dtype. TypeError for a dtype that is no storage format here."""
    try:
        return _BY_TORCH[dtype]
    except KeyError:
        raise TypeError(f"{dtype} is not one of {', '.join(FORMATS)}") from None


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bit patterns of `tensor` as signed integers of its own width; same shape, no copy."""
    return tensor.view(of(tensor.dtype).bits)


def hex_bits(value: torch.Tensor) -> str:
    """One element's bit pattern as text, `0x3f80`."""
    own = of(value.dtype)
    mask = (1 << (8 * own.itemsize)) - 1
    return f"0x{int(bits(value.reshape(1)).item()) & mask:0{2 * own.itemsize}x}"

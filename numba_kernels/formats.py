"""The storage formats: what an operator's arrays may hold. All that depends on a format's layout is derived from this table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """An IEEE-like binary format: a sign, an exponent and ``fraction_bits`` of fraction in ``bits`` bits."""

    name: str
    dtype: str  # what NumPy, ml_dtypes and torch call it
    bits: int
    fraction_bits: int
    ptx: str  # the suffix of its type in PTX

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return self.bits // 8

    @property
    def word(self) -> str:
        """NumPy's and Numba's name of the unsigned integer that holds one value's bits."""
        return f"uint{self.bits}"

    @property
    def minus_zero(self) -> int:
        """The bits of -0."""
        return 1 << (self.bits - 1)

    @property
    def one(self) -> int:
        """The bits of 1: the exponent's bias, and no fraction."""
        exponent_bits = self.bits - 1 - self.fraction_bits
        return ((1 << (exponent_bits - 1)) - 1) << self.fraction_bits


FORMATS = {
    each.name: each
    for each in (
        Format("fp32", "float32", 32, 23, "f32"),
        Format("fp16", "float16", 16, 10, "f16"),
        Format("bf16", "bfloat16", 16, 7, "bf16"),
    )
}
BY_DTYPE = {each.dtype: each for each in FORMATS.values()}

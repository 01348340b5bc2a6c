"""Logical global-memory bytes of an operator, fused and split: what a form must read and write, and which contract it keeps.

A ledger, not a measurement: each tensor is counted as often as a form must touch it, with no caches, transactions or spills.
Two accounts of the weight stand side by side. Once a row is what the kernels' loads ask for. Once a launch is what has to come
from memory where a cache holds the weight, and what the benchmark's GB/s divide by.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference.operators import Operator, operator

FP32 = 4  # bytes of an intermediate value that no contract rounds

Kernels = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]  # what each reads and writes


@dataclass(frozen=True, slots=True)
class Access:
    """One tensor that one kernel of a form reads or writes, in bytes."""

    kernel: int
    tensor: str
    writes: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class Form:
    """One way to compute an operator: its kernels' accesses, and the contract code that 16-bit storage ends up with."""

    name: str
    contract: str
    accesses: tuple[Access, ...]

    @property
    def kernels(self) -> int:
        """How many kernels the form launches."""
        return 1 + max(access.kernel for access in self.accesses)

    @property
    def read(self) -> int:
        """Bytes read."""
        return sum(access.bytes for access in self.accesses if not access.writes)

    @property
    def written(self) -> int:
        """Bytes written."""
        return sum(access.bytes for access in self.accesses if access.writes)

    @property
    def total(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


@dataclass(frozen=True, slots=True)
class Ledger:
    """The forms of one operator: fused, then those that its declaration splits in two kernels.

    With N = rows * width elements of s bytes, and the weight, of the storage format, once a row:

    - a sum and a norm: fused 5Ns; split, fp32 sum kept: 5Ns + 8N; split, the stored and so rounded sum re-read (R1): 6Ns.
    - a norm:     fused 3Ns; split, fp32 normalised row kept: 3Ns + 8N; split, normalised row rounded (W1): 5Ns.
    - gate and up: fused 3Ns; split, fp32 activation kept: 3Ns + 8N; split, activation rounded (S1): 5Ns.
    """

    forms: tuple[Form, ...]

    @property
    def fused(self) -> Form:
        """One kernel."""
        return self.forms[0]


def ledger(
    op: str | Operator,
    rows: int,
    width: int,
    itemsize: int,
    *,
    weight_itemsize: int | None = None,
    weight_per_row: bool = True,
) -> Ledger:
    """The ledger of `op`; `weight_itemsize` is the storage's unless given, `weight_per_row=False` counts the weight once."""
    op = operator(op)
    stored, exact = rows * width * itemsize, rows * width * FP32
    vector = (rows if weight_per_row else 1) * width * (weight_itemsize or itemsize)

    def size(tensor: str) -> int:
        if tensor in op.vectors:
            return vector
        return exact if tensor.endswith(" fp32") else stored

    def form(name: str, code: str, kernels: Kernels) -> Form:
        accesses = [
            Access(number, tensor, writes, size(tensor))
            for number, (read, written) in enumerate(kernels)
            for tensors, writes in ((read, False), (written, True))
            for tensor in tensors
        ]
        return Form(name, code, tuple(accesses))

    fused = form("fused", op.codes[0], (((*op.roles, *op.vectors), op.outputs),))
    # For fp32 storage a rounding to storage is none, so every form keeps the contract.
    split = [form(each.name, op.codes[0] if itemsize == FP32 else each.code, each.kernels) for each in op.split_forms]
    return Ledger((fused, *split))


def moved(op: str | Operator, rows: int, width: int, itemsize: int) -> int:
    """Bytes that one fused call moves, the weight once: what GB/s divide by. 4Ns + Ds with a sum, 2Ns + Ds of a norm, 3Ns of gate
    and up."""
    return ledger(op, rows, width, itemsize, weight_per_row=False).fused.total

"""Logical global-memory bytes of an operator, fused and split: what a form must read and write, and which contract it keeps.

A ledger, not a measurement: each tensor is counted as often as a form must touch it, with no caches, transactions or spills.
Two accounts of the weight stand side by side. Once a row is what the kernels' loads ask for. Once a launch is what has to come
from memory where a cache holds the weight, and what the benchmark's GB/s divide by.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference.operators import Operator, operator

FP32 = 4  # bytes of an intermediate value that no contract rounds


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
    """The forms of one operator: fused, split with an fp32 intermediate, split with one of the storage dtype.

    With N = rows * width elements of s bytes, and the weight, of the storage dtype, once a row:

    - add_norm: fused 5Ns; split, fp32 sum kept: 5Ns + 8N; split, the stored and so rounded sum re-read (R1): 6Ns.
    - norm:     fused 3Ns; split, fp32 normalised row kept: 3Ns + 8N; split, normalised row rounded (W1): 5Ns.
    - gated:    fused 3Ns; split, fp32 activation kept: 3Ns + 8N; split, activation rounded (S1): 5Ns.
    """

    fused: Form
    kept: Form
    stored: Form

    @property
    def forms(self) -> tuple[Form, Form, Form]:
        """All three, the fused one first."""
        return self.fused, self.kept, self.stored


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
    stored = rows * width * itemsize
    exact = rows * width * FP32
    weight = (rows if weight_per_row else 1) * width * (weight_itemsize or itemsize)
    sizes = {"weight": weight, "sum fp32": exact, "normalised fp32": exact, "activation fp32": exact}

    def form(name: str, contract: str, *kernels: tuple[str, str]) -> Form:
        """Each kernel as its reads and its writes, comma-separated; a tensor without a size of its own holds `stored` bytes."""
        accesses = [
            Access(number, tensor.strip(), writes, sizes.get(tensor.strip(), stored))
            for number, (read, written) in enumerate(kernels)
            for tensors, writes in ((read, False), (written, True))
            for tensor in tensors.split(",")
        ]
        return Form(name, contract, tuple(accesses))

    # For fp32 storage a rounding to storage is none, so the last form keeps the contract too.
    exact_storage = itemsize == FP32
    if op.family == "add_norm":
        return Ledger(
            form("fused", "R0W0", ("input, residual, weight", "residual, output")),
            form(
                "split, fp32 sum kept",
                "R0W0",
                ("input, residual", "residual, sum fp32"),
                ("sum fp32, weight", "output"),
            ),
            form(
                "split, stored sum re-read",
                "R0W0" if exact_storage else "R1W0",
                ("input, residual", "residual"),
                ("residual, weight", "output"),
            ),
        )
    if op.family == "norm":
        return Ledger(
            form("fused", "W0", ("input, weight", "output")),
            form(
                "split, fp32 row kept",
                "W0",
                ("input", "normalised fp32"),
                ("normalised fp32, weight", "output"),
            ),
            form(
                "split, row kept as stored",
                "W0" if exact_storage else "W1",
                ("input", "normalised"),
                ("normalised, weight", "output"),
            ),
        )
    return Ledger(
        form("fused", "S0", ("gate, up", "output")),
        form("split, fp32 activation kept", "S0", ("gate", "activation fp32"), ("activation fp32, up", "output")),
        form(
            "split, activation as stored",
            "S0" if exact_storage else "S1",
            ("gate", "activation"),
            ("activation, up", "output"),
        ),
    )


def moved(op: str | Operator, rows: int, width: int, itemsize: int) -> int:
    """Bytes that one fused call moves, the weight once: add_norm 4Ns + Ds, norm 2Ns + Ds, gated 3Ns. What GB/s divide by."""
    return ledger(op, rows, width, itemsize, weight_per_row=False).fused.total

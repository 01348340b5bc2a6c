"""The memory a candidate is called on: guard bands around every buffer and between rows, snapshots, poisoned outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from difftest.cases.case import Case
from difftest.run.memory import ALIGNMENT, Take, own
from reference.formats import Format, bits

# Elements of poison before and after each buffer. 128 elements are 256 bytes or more, so a base without an offset keeps
# the allocator's alignment of 64 bytes, and a stray 16-byte vector store on either side lands in the band.
GUARD = 128
MOST_BETWEEN = 1 << 24  # elements between two rows that are poisoned and watched: of more, a guard band beside each row


@dataclass(frozen=True, slots=True)
class Placed:
    """Where one tensor of a call lies: a view, in elements of an allocation."""

    storage: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    base: int

    def hand_over(self) -> torch.Tensor:
        """A new tensor there, for the candidate: what it does to that object leaves others as they are."""
        return self.storage.detach().as_strided(self.shape, self.strides, self.storage.storage_offset() + self.base)

    def became(self, handed: torch.Tensor) -> str | None:
        """What became of a tensor that was handed over, if it is no longer the view that it was. None if it still is.

        Memory that was freed is allocated anew, for whoever reads it next.
        """
        if self.storage.untyped_storage().nbytes() < self.storage.nbytes:
            self.storage.untyped_storage().resize_(self.storage.nbytes)
            return "was freed"
        if handed.shape != self.shape:
            return f"has shape {tuple(handed.shape)} after the call, not {self.shape}"
        if handed.data_ptr() != self.hand_over().data_ptr():
            return "was rebound to other memory"
        if handed.stride() != self.strides:
            return f"has strides {handed.stride()} after the call, not {self.strides}"
        return None


@dataclass(slots=True)
class Buffer:
    """One tensor inside a larger poisoned allocation.

    `view` is the tester's own; a candidate gets another of the same memory, `placed`. `watched` is where writes are looked for,
    in two dimensions: the whole allocation as one row, or, of rows far apart, each row between two guard bands. `before` has the
    bit patterns there as they were ahead of the call; in it the view's first row begins at `first`, the next `apart` further on.
    """

    name: str
    view: torch.Tensor
    storage: torch.Tensor
    base: int
    length: int  # elements in a row
    stride: int  # elements from one row to the next
    watched: torch.Tensor
    before: torch.Tensor
    first: int
    apart: int

    def fill(self, values: torch.Tensor) -> None:
        """Writes the values into the view, and remembers what is watched as it now is."""
        self.view.copy_(values.reshape(self.view.shape))
        self.before = _copied(self.watched)

    def restore(self) -> None:
        """What is watched as it was ahead of the call."""
        bits(self.watched).copy_(self.before)

    def snapshot(self) -> torch.Tensor:
        """The view's elements as they were ahead of the call: contiguous, the view's shape, memory of its own."""
        return self._rows(self.before.view(self.view.dtype)).reshape(self.view.shape).clone()

    def placed(self) -> Placed:
        """Where the view lies."""
        return Placed(self.storage, tuple(self.view.shape), self.view.stride(), self.base)

    def stray_writes(self, *, writable: bool) -> str | None:
        """What was written where nothing may be: outside the rows, or anywhere when not writable. None if nothing."""
        changed = bits(self.watched) != self.before
        if writable:
            self._rows(changed).fill_(False)
        where = changed.nonzero()
        if not len(where):
            return None
        count = f"{len(where)} element{'s' if len(where) > 1 else ''}"
        return f"{self.name}: {count} overwritten, the first {self._place(*where[0].tolist())}"

    def _rows(self, beside: torch.Tensor) -> torch.Tensor:
        """The view's rows in a contiguous tensor of the shape of `watched`."""
        return beside.as_strided((math.prod(self.view.shape[:-1]), self.length), (self.apart, 1), self.first)

    def _place(self, watched_row: int, watched_column: int) -> str:
        offset = watched_row * self.stride + watched_column - self.first
        rows = max(1, math.prod(self.view.shape[:-1]))
        if offset < 0:
            return f"{-offset} before its start"
        row, column = divmod(offset, self.stride)
        if row >= rows:
            row, column = rows - 1, offset - (rows - 1) * self.stride
        if column < self.length:
            return f"at row {row}, column {column}"
        return f"{column - self.length + 1} past the end of row {row}"


def allocate(
    name: str,
    lead: tuple[int, ...],
    length: int,
    dtype: Format,
    device: torch.device,
    *,
    padding: int = 0,
    offset: int = 0,
    take: Take | None = None,
) -> Buffer:
    """A buffer of shape (*lead, length), every element of it and around it poison. `take`: out of which memory."""
    stride = length + padding
    rows = math.prod(lead)
    base = GUARD + offset
    span = max(0, (rows - 1) * stride + length) if rows else 0
    storage = (take or own(device))(base + span + GUARD, dtype.bits).view(dtype.torch)
    strides = tuple(stride * math.prod(lead[i + 1 :]) for i in range(len(lead)))
    view = storage.as_strided((*lead, length), (*strides, 1), storage.storage_offset() + base)
    first, apart, watched = base, stride, storage.view(1, -1)
    if padding > MOST_BETWEEN:
        first, apart = GUARD, GUARD + length + GUARD
        watched = storage.as_strided((rows, apart), (stride, 1), storage.storage_offset() + base - GUARD)
    bits(watched).fill_(dtype.poison)
    return Buffer(name, view, storage, base, length, stride, watched, _copied(watched), first, apart)


def _copied(watched: torch.Tensor) -> torch.Tensor:
    return bits(watched).clone(memory_format=torch.contiguous_format)


def room(case: Case) -> int:
    """Bytes that are enough for a call's buffers, each once, and a copy of its output."""
    names = (*case.operator.inputs, "output")
    rows = (max(1, case.rows) * 3 * case.width + 2 * GUARD + 1) * 4 + ALIGNMENT
    between = max(1, case.rows) * sum(elements for _, elements in case.padding) * case.format.itemsize
    return (len(names) + 3) * rows + between  # two more for the outputs of further attempts


def allocate_output(case: Case, take: Take | None = None) -> Buffer:
    """A poisoned buffer in the case's layout to hand over as `out`."""
    offset = 1 if "output" in case.misaligned else 0
    device = torch.device(case.device)
    padding = case.padding_of("output")
    return allocate("output", case.lead, case.width, case.format, device, padding=padding, offset=offset, take=take)


def allocate_inputs(case: Case, values: Mapping[str, torch.Tensor], take: Take | None = None) -> dict[str, Buffer]:
    """Buffers for the case's inputs in its layout on its device, filled with the values given."""
    buffers = {}
    for name in case.operator.inputs:
        weight = name in case.operator.vectors
        buffer = allocate(
            name,
            () if weight else case.lead,
            values[name].shape[-1],
            case.weight_format if weight else case.format,
            torch.device(case.device),
            padding=case.padding_of(name),
            offset=1 if name in case.misaligned else 0,
            take=take,
        )
        buffer.fill(values[name])
        buffers[name] = buffer
    return buffers


@contextmanager
def poisoned_allocations() -> Iterator[None]:
    """While it lasts, torch fills every tensor that it hands out uninitialised with NaN.

    An operator that allocates its own output can otherwise be given memory in which an earlier call left the answer.
    torch does this in its deterministic mode, here with warnings in place of errors, and set by the one of its two functions that
    does not import the compiler, which takes seconds.
    """
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)


def span(tensor: torch.Tensor) -> tuple[str, int, int]:
    """Its device, the address of its first element and the one after its last."""
    if not tensor.numel():
        return str(tensor.device), 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return str(tensor.device), tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the spans of memory from each tensor's first to last element overlap."""
    return spans_overlap(span(a), span(b))


def spans_overlap(a: tuple[str, int, int], b: tuple[str, int, int]) -> bool:
    """The same of two spans; an empty one overlaps nothing."""
    (device_a, start_a, end_a), (device_b, start_b, end_b) = a, b
    return device_a == device_b and start_a < end_a and start_b < end_b and start_a < end_b and start_b < end_a

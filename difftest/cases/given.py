"""Inputs that no regime draws: values written out bit by bit, or the tensors of a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from difftest.cases.file import inputs_of, load
from reference.formats import Format, bits
from reference.operators.declaration import Tensors

_WORD = re.compile(r"([0-9a-f]+)(?:\*([1-9][0-9]{0,15}))?")


class Given(Protocol):
    """Where a case's inputs come from, if not from its regime and its seed."""

    def tensors(self, formats: Mapping[str, Format], sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """The inputs by name, on the CPU, one dimension or more. ValueError where they are not there.

        `sizes`: the elements that the call takes of each; of more, none is made.
        """

    def to_json(self) -> dict[str, Any]:
        """Plain data: what `from_json` takes."""


@dataclass(frozen=True, slots=True)
class Values:
    """Each input by name as text: its elements' bits in hexadecimal, row after row, `WORD*COUNT` for a run of equal ones."""

    words: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, inputs: Tensors) -> Values:
        """The values of these tensors."""
        return cls(tuple((name, in_words(tensor)) for name, tensor in inputs.items()))

    def tensors(self, formats: Mapping[str, Format], sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """The inputs, each of one dimension."""
        written = dict(self.words)
        if set(written) != set(formats):
            raise ValueError(f"values of {', '.join(written) or 'nothing'}; the call takes {', '.join(formats)}")
        return {name: _from_words(name, written[name], own, sizes[name]) for name, own in formats.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"values": dict(self.words)}


@dataclass(frozen=True, slots=True)
class File:
    """The tensors that an operator takes out of a .safetensors or .npz file. `sha256`: of all the file's bytes."""

    op: str
    path: str
    sha256: str

    def tensors(self, formats: Mapping[str, Format], sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """The inputs, in the shapes of the file."""
        return inputs_of(self.op, load(Path(self.path), self.sha256))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"file": self.path, "sha256": self.sha256}


def from_json(op: str, record: Any) -> Given:
    """The inputs that a record gives for an operator. ValueError says what is wrong with it."""
    if isinstance(record, Mapping) and isinstance(record.get("values"), Mapping):
        for name, words in record["values"].items():
            if not name.isidentifier():
                raise ValueError(f"values of {name!r}: no name of a tensor")
            if not isinstance(words, str):
                raise ValueError(f"values of {name}: {words!r} is not allowed; allowed: text of hexadecimal digits")
        return Values(tuple(record["values"].items()))
    if isinstance(record, Mapping) and all(isinstance(record.get(key), str) for key in ("file", "sha256")):
        return File(op, record["file"], record["sha256"])
    raise ValueError("given: neither values nor a file with its sha256")


def in_words(tensor: torch.Tensor) -> str:
    """A tensor's bits as text, `WORD*COUNT` for a run of equal ones."""
    digits, mask = 2 * tensor.element_size(), (1 << 8 * tensor.element_size()) - 1
    runs, counts = torch.unique_consecutive(bits(tensor.contiguous()).flatten(), return_counts=True)
    pairs = zip(runs.tolist(), counts.tolist(), strict=True)
    return " ".join(f"{word & mask:0{digits}x}" + (f"*{count}" if count > 1 else "") for word, count in pairs)


def _from_words(name: str, text: str, own: Format, size: int) -> torch.Tensor:
    """The inverse of `in_words`: one dimension. ValueError for no text of that format, or of more elements than `size`."""
    runs, counts, digits = [], [], 2 * own.itemsize
    for word in text.split():
        found = _WORD.fullmatch(word)
        if found is None or len(found[1]) != digits:
            raise ValueError(
                f"values of {name}: {word!r} is not {digits} hexadecimal digits, or such with *COUNT, as {own.name} needs"
            )
        value = int(found[1], 16)
        runs.append(value - (1 << 4 * digits) if value >> (4 * digits - 1) else value)
        counts.append(int(found[2] or 1))
    if sum(counts) > size:
        raise ValueError(f"values of {name}: {sum(counts)} elements, the call takes {size}")
    return torch.tensor(runs, dtype=own.bits).repeat_interleave(torch.tensor(counts, dtype=torch.int64)).view(own.torch)

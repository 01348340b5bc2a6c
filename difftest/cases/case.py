"""A case: one concrete call, recorded in full. The tester, identify, the matrix and the benchmark all call cases."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from difftest import options
from difftest.cases import given, ledger, regimes
from difftest.cases import record as records
from difftest.cases import weights as families
from difftest.cases.draw import Draw
from difftest.cases.given import Given
from reference.contracts import Contract, contract
from reference.formats import FORMATS, Format
from reference.operators import Operator, operator
from reference.providers.claims import libraries

SCHEMA = "numba-kernels/difftest-case/2"
READ = (SCHEMA, "numba-kernels/difftest-case/1")  # whose padding is one number, for every buffer, and whose `out` is yes or no

FILE = "file"  # in place of a regime's name where the inputs are a file's
OUT_NONE, OUT_GIVEN, OUT_INPUT = "none", "given", "input"  # from plain to odd


@dataclass(frozen=True, slots=True)
class Case:
    """One call, with everything needed to build it again bit for bit.

    `lead`: the shape before the row: () is a 1-D tensor, (4,) four rows, (2, 3) a 3-D tensor. `width`: of an output row.
    `contract`: what the candidate is held to; its eps and further parameters are those of the call.
    `weights`: the family that the vectors are drawn from.
    `padding`: elements between two rows of a row buffer (row stride = row length + padding), by the buffer's name ("output" for
    an `out` that is given), in the order of the call; none where it is 0.
    `misaligned`: the buffers, by name, whose base lies one element past an aligned one.
    `out`: what the candidate is handed as `out`, where it takes one: "none", "given" (a poisoned buffer) or "input" (its input).
    `origin`: which part of the generator made it: "grid", "array:INDEX", "far", "random:INDEX"; "search" and "file" make others.
    `given`: the inputs, where they are not what regime, weights and seed draw.
    """

    op: str
    dtype: str
    lead: tuple[int, ...]
    width: int
    regime: str
    seed: int
    contract: Contract
    weights: str = families.USUAL
    weight_dtype: str | None = None  # None: the dtype of the rows
    padding: tuple[tuple[str, int], ...] = ()
    misaligned: tuple[str, ...] = ()
    out: str = OUT_NONE
    device: str = "cpu"
    origin: str = "grid"
    given: Given | None = None

    @property
    def rows(self) -> int:
        """Number of rows; a 1-D tensor is one row."""
        return math.prod(self.lead)

    @property
    def operator(self) -> Operator:
        """The operator by its name."""
        return operator(self.op)

    @property
    def format(self) -> Format:
        """The storage format of the rows."""
        return FORMATS[self.dtype]

    @property
    def weight_format(self) -> Format:
        """The storage format of the vectors, which is the weight's."""
        return FORMATS[self.weight_dtype or self.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each output."""
        return (*self.lead, self.width)

    @property
    def moved(self) -> int:
        """Bytes that one fused call reads and writes, the weight once: what GB/s divide by."""
        return ledger.moved(self.op, self.rows, self.width, self.format.itemsize)

    @property
    def spelling(self) -> str:
        """What `--contract` calls the contract."""
        return spelling(self.operator, self.contract)

    def padding_of(self, buffer: str) -> int:
        """Elements between two rows of the buffer of that name."""
        return dict(self.padding).get(buffer, 0)

    def plain(self) -> Case:
        """The same call on contiguous, aligned rows, with no `out` handed over."""
        return replace(self, padding=(), misaligned=(), out=OUT_NONE)

    def inputs(self, device: str = "cpu") -> dict[str, torch.Tensor]:
        """The call's inputs by name, as given or drawn anew from the seed: contiguous, in the shapes of the call.

        ValueError where those given are not there, or not of that call.
        """
        shapes = self.operator.shapes(self.lead, self.width)
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        values = self._drawn() if self.given is None else self.given.tensors(self._formats(), sizes)
        for name, value in values.items():
            if value.numel() != sizes[name] or value.dtype != self._formats()[name].torch:
                right = f"{self._formats()[name].torch} {shapes[name]}"
                raise ValueError(f"{name} is {value.dtype} {tuple(value.shape)}, the case's {right}")
        return {name: value.reshape(shapes[name]).to(device) for name, value in values.items()}

    def _drawn(self) -> regimes.Values:
        drawn = Draw(self.operator, self.contract, self.rows, self.width, self.format, torch.Generator())
        return regimes.draw(self.regime, drawn, self.weight_format, self.seed, self.weights)

    def _formats(self) -> dict[str, Format]:
        """The storage format of every input."""
        vectors = self.operator.vectors
        return {name: self.weight_format if name in vectors else self.format for name in self.operator.inputs}

    def to_json(self) -> dict[str, Any]:
        """Plain data: what `from_json` takes, plus `rows` for the reader."""
        record: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "contract":
                record |= {"contract": self.spelling, "eps": self.contract.eps, **dict(self.contract.parameters)}
            elif field.name == "padding":
                record["padding"] = dict(self.padding)
            elif field.name == "given":
                record |= {"given": self.given.to_json()} if self.given else {}
            else:
                record[field.name] = list(value) if isinstance(value, tuple) else value
        return {**record, "rows": self.rows}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Case:
        """The case in a record; keys that are not a case's are ignored. ValueError says in a line what is wrong with it."""
        records.check(record)
        check_schema(record, *READ)
        known = {field.name for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items() if k in known}
        try:
            op = operator(values["op"])
            if "out_given" in record:
                values["out"] = OUT_GIVEN if record["out_given"] else OUT_NONE
            values["padding"] = _paddings(values.get("padding", 0), row_buffers(op, values.get("out", OUT_NONE)))
            numbers = {name: record[name] for name in ("eps", *(p.name for p in op.parameters)) if name in record}
            values["contract"] = contract(op, values["contract"], **numbers)
            if "given" in record:
                values["given"] = given.from_json(op.name, record["given"])
            case = cls(**values)
        except KeyError as error:
            raise ValueError(f"not a case record: it lacks {error}") from None
        except TypeError as error:  # of the dataclass: fields without a value
            raise ValueError(f"not a case record: {str(error).partition(') ')[2] or error}") from None
        case._check()
        return case

    def _check(self) -> None:
        for name, value, allowed in (
            ("dtype", self.dtype, FORMATS),
            ("weight_dtype", self.dtype if self.weight_dtype is None else self.weight_dtype, FORMATS),
            ("regime", self.regime, (*regimes.names(self.operator), *([FILE] if self.given else []))),
            ("weights", self.weights, families.names(self.operator)),
            ("out", self.out, outs(self.operator)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} {value!r} of {self.op} is not one of {', '.join(allowed)}")
        buffers = (*row_buffers(self.operator, self.out), *self.operator.vectors)
        if unknown := [name for name in self.misaligned if name not in buffers]:
            raise ValueError(f"misaligned {', '.join(map(repr, unknown))}: the buffers are {', '.join(buffers)}")
        elements = self.rows * max(2 * self.width, *(self.width + padding for _, padding in self.padding), 0)
        if elements > options.MOST:
            raise ValueError(f"lead {list(self.lead)}, width {self.width}: more than {options.MOST} elements")

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {'x'.join(map(str, self.shape))}"


def outs(op: Operator) -> tuple[str, ...]:
    """What a call can be handed as `out`: nothing where it works in place; the input too where its rows are as long."""
    if op.mutated:
        return (OUT_NONE,)
    return (OUT_NONE, OUT_GIVEN, OUT_INPUT) if op.row_length(op.rows[0], 1) == 1 else (OUT_NONE, OUT_GIVEN)


def row_buffers(op: Operator, out: str) -> tuple[str, ...]:
    """The buffers of a call that hold rows: those of the inputs, and the output where it is given memory of its own."""
    return (*op.rows, "output") if out == OUT_GIVEN else op.rows


def _paddings(record: int | Mapping[str, int], buffers: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """A record's padding in the order of the buffers; one number is for every buffer."""
    if isinstance(record, int):
        record = dict.fromkeys(buffers, record)
    if unknown := set(record) - set(buffers):
        raise ValueError(f"padding of {', '.join(sorted(unknown))}: the buffers of rows are {', '.join(buffers)}")
    return tuple((name, record[name]) for name in buffers if record.get(name))


def spelling(op: Operator, meant: Contract) -> str:
    """What `--contract` calls a contract of the operator: its code, or a library that adds the bias where this contract does."""
    if meant.bias_in_fp32:
        return meant.code
    return next(name for name in libraries(op) if replace(contract(op, name), eps=meant.eps) == meant)


def check_schema(record: Mapping[str, Any], *known: str) -> None:
    """ValueError, which names the version, for a record that says it is of another schema than those known. None says nothing."""
    found = record.get("schema")
    if found is not None and found not in known:
        raise ValueError(f"its schema is {found!r}, which is not read here; read is {' or '.join(known)}")

"""A case: one concrete call, recorded in full. The tester, identify, the matrix and the benchmark all call cases."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from difftest.cases import ledger, regimes
from reference.contracts import Contract, contract
from reference.formats import FORMATS, Format
from reference.operators import Operator, operator
from reference.providers.claims import libraries

SCHEMA = "numba-kernels/difftest-case/1"


@dataclass(frozen=True, slots=True)
class Case:
    """One call, with everything needed to build it again bit for bit.

    `lead`: the shape before the row: () is a 1-D tensor, (4,) four rows, (2, 3) a 3-D tensor. `width`: of an output row.
    `contract`: what the candidate is held to; its eps and further parameters are those of the call.
    `padding`: elements between two rows of every row buffer (row stride = row length + padding).
    `misaligned`: the buffers (inputs by name, "output") whose base lies one element past an aligned one.
    `out_given`: hand the candidate a poisoned `out`, where it takes one.
    `origin`: which part of the generator made it: "grid", "layout" or "random:INDEX".
    """

    op: str
    dtype: str
    lead: tuple[int, ...]
    width: int
    regime: str
    seed: int
    contract: Contract
    weight_dtype: str | None = None  # None: the dtype of the rows
    padding: int = 0
    misaligned: tuple[str, ...] = ()
    out_given: bool = False
    device: str = "cpu"
    origin: str = "grid"

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

    def plain(self) -> Case:
        """The same call on contiguous, aligned rows, with no `out` handed over."""
        return replace(self, padding=0, misaligned=(), out_given=False)

    def inputs(self, device: str = "cpu") -> dict[str, torch.Tensor]:
        """The call's inputs by name, drawn anew from the seed: contiguous, in the shapes of the call."""
        drawn = regimes.Draw(self.operator, self.contract, self.rows, self.width, self.format, torch.Generator())
        values = regimes.draw(self.regime, drawn, self.weight_format, self.seed)
        shapes = self.operator.shapes(self.lead, self.width)
        return {name: value.reshape(shapes[name]).to(device) for name, value in values.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain data: what `from_json` takes, plus `rows` for the reader."""
        record: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "contract":
                record |= {"contract": self.spelling, "eps": self.contract.eps, **dict(self.contract.parameters)}
            else:
                record[field.name] = list(value) if isinstance(value, tuple) else value
        return {**record, "rows": self.rows}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Case:
        """The case in a record; keys that are not a case's are ignored. ValueError says in a line what is wrong with it."""
        check_schema(record, SCHEMA)
        known = {field.name for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items() if k in known}
        try:
            op = operator(values["op"])
            numbers = {name: record[name] for name in ("eps", *(p.name for p in op.parameters)) if name in record}
            values["contract"] = contract(op, str(values["contract"]), **numbers)
            case = cls(**values)
        except KeyError as error:
            raise ValueError(f"not a case record: it lacks {error}") from None
        except TypeError as error:
            raise ValueError(f"not a case record: {str(error).partition(') ')[2] or error}") from None
        case._check()
        return case

    def _check(self) -> None:
        for name, value, allowed in (
            ("dtype", self.dtype, FORMATS),
            ("weight_dtype", self.weight_dtype or self.dtype, FORMATS),
            ("regime", self.regime, regimes.names(self.operator)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} {value!r} of {self.op} is not one of {', '.join(allowed)}")
        if any(type(n) is not int or n < 0 for n in (*self.lead, self.padding)) or type(self.width) is not int or self.width < 1:
            raise ValueError(f"lead {list(self.lead)}, width {self.width}, padding {self.padding}: not a shape")

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {'x'.join(map(str, self.shape))}"


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

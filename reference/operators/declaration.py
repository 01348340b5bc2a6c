"""What an operator's declaration says, and everything that follows from it: names, shapes, codes, the order of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from inspect import Parameter as SignatureParameter
from inspect import Signature
from itertools import product
from typing import Any, Protocol

import torch

Tensors = Mapping[str, torch.Tensor]

FP32_MAX = float.fromhex("0x1.fffffep127")
DEFAULT_EPS = 1e-6  # FlashInfer's default; fixed here because libraries' own defaults differ
RSTD = "rstd"  # `made_of` of the norms; the other operators name their activation


class Role(Enum):
    """How a tensor's last axis stands to the width of an output row."""

    ROWS = "rows"  # (..., width)
    WRITTEN_ROWS = "written rows"  # (..., width), overwritten by the call
    VECTOR = "vector"  # (width,), one for all rows
    HALVES = "halves"  # (..., 2 * width): gate, then up
    PAIRS = "pairs"  # (..., 2 * width): gate in the even columns, up in the odd ones


_TWO_IN_ONE = (Role.HALVES, Role.PAIRS)
PARTS = ("gate", "up")  # what a tensor of HALVES or PAIRS holds


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the signature."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Rounding:
    """One place where implementations round differently: the code's letter, and what each digit after it means."""

    letter: str
    choices: tuple[str, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """Letter and digit of every choice."""
        return tuple(f"{self.letter}{digit}" for digit in range(len(self.choices)))


SUM = Rounding("R", ("the fp32 sum input + residual is normalised", "the sum as stored is normalised"))
NORM = Rounding("W", ("(h * rstd) * w in fp32, rounded once", "h * rstd rounded to storage, then times w, rounded again"))
ACTIVATION = Rounding("S", ("act(gate) * up in fp32, rounded once", "act(gate) rounded to storage before up multiplies it"))
# What eager code computes whose activation is written as several torch operations.
EVERY_OPERATION = Rounding("S", (*ACTIVATION.choices, "every operation rounded to storage"))


@cache
def codes_of(roundings: tuple[Rounding, ...]) -> tuple[str, ...]:
    """Every contract code of those roundings: R0W0, R1W0, R0W1, R1W1 for (SUM, NORM)."""
    return tuple("".join(reversed(each)) for each in product(*(r.codes for r in reversed(roundings))))


KNOWN_CODES = codes_of((SUM, NORM)) + codes_of((NORM,)) + codes_of((EVERY_OPERATION,))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that a call passes after its tensors: its default, and the range that is allowed, ends included.

    `other`: a second value, with which outputs differ: what ignores the number that it is passed shows.
    """

    name: str
    default: float
    lowest: float
    highest: float
    other: float

    def check(self, value: float) -> None:
        """Raises ValueError for a value outside the range, or a NaN."""
        if not self.lowest <= value <= self.highest:
            raise ValueError(f"{self.name} must lie in [{self.lowest:g}, {self.highest:g}], got {value}")


EPS = Parameter("eps", DEFAULT_EPS, 0.0, FP32_MAX, other=1e-5)


@dataclass(frozen=True, slots=True)
class Switch:
    """A value of `role` at which the formula changes its form (a clamp): `sign` times the contract's `parameter`."""

    role: str
    parameter: str
    sign: float = 1.0


@dataclass(frozen=True, slots=True)
class SplitForm:
    """The operator as two kernels that hand an intermediate tensor over: what each reads and writes.

    `code` is the contract that 16-bit storage ends up with. A tensor named `... fp32` holds fp32, any other the storage
    format.
    """

    name: str
    code: str
    kernels: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


class Values(Protocol):
    """What a declaration reads of a contract."""

    def value(self, name: str) -> float:
        """The contract's value of a declared parameter."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One mathematical function of rows. `width` is the width of an *output* row, T the storage format.

    A call passes the tensors in their order, then the parameters. An operator with WRITTEN_ROWS returns None and leaves
    its outputs in them, in order (`output` in `input`); any other returns `output`.

    `formula(A, *operands, contract)` gives the outputs in their order over an arithmetic `A` (`reference.arithmetic`);
    the operands are the tensors in their order, loaded, with gate and up in place of one that holds both. `made_of` is
    what the proved bounds are keyed by: RSTD, or the name of an activation.
    """

    name: str
    tensors: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    formula: Callable[..., tuple[Any, ...]] = field(compare=False)  # a partial is no longer equal after a pickle
    roundings: tuple[Rounding, ...]
    made_of: str
    parameters: tuple[Parameter, ...] = ()
    weight_bias: float = 0.0  # added to the weight; 1 in the Gemma forms
    switches: tuple[Switch, ...] = ()
    split_forms: tuple[SplitForm, ...] = ()

    # --- names ---

    @property
    def codes(self) -> tuple[str, ...]:
        """The rounding contracts that this operator tells apart; the first is FlashInfer's."""
        return codes_of(self.roundings)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tensors that go in."""
        return tuple(t.name for t in self.tensors)

    @property
    def mutated(self) -> tuple[str, ...]:
        """The tensors that a call overwrites."""
        return self._named(Role.WRITTEN_ROWS)

    @property
    def lands_in(self) -> dict[str, str]:
        """Output -> the tensor that it overwrites, for an operator that works in place; else empty."""
        return dict(zip(self.outputs, self.mutated, strict=False))

    @property
    def vectors(self) -> tuple[str, ...]:
        """The tensors that are one vector for all rows."""
        return self._named(Role.VECTOR)

    @property
    def rows(self) -> tuple[str, ...]:
        """The tensors that have a row of their own for each row of the output."""
        return tuple(t.name for t in self.tensors if t.role is not Role.VECTOR)

    @property
    def roles(self) -> tuple[str, ...]:
        """What a regime of inputs fills with rows of `width`: the row tensors, or gate and up."""
        return tuple(part for t in self.tensors if t.role is not Role.VECTOR for part in _parts(t))

    @property
    def activation(self) -> str | None:
        """The activation's name, or None for a norm."""
        return None if self.made_of == RSTD else self.made_of

    def _named(self, *roles: Role) -> tuple[str, ...]:
        return tuple(t.name for t in self.tensors if t.role in roles)

    # --- shapes ---

    def row_length(self, name: str, width: int) -> int:
        """Elements in a row (or the vector) of the tensor or output `name`: twice the width where it holds gate and up."""
        return width * (2 if name in self._named(*_TWO_IN_ONE) else 1)

    def width_of(self, inputs: Tensors) -> int:
        """The width of an output row. Raises ValueError where gate and up would not fill a row."""
        first = self.rows[0]
        length, share = inputs[first].shape[-1], self.row_length(first, 1)
        if length % share:
            raise ValueError(f"{first} of {self.name} holds gate and up side by side: {length} is odd")
        return length // share

    def output_shape(self, inputs: Tensors) -> torch.Size:
        """The shape of every output."""
        return torch.Size((*inputs[self.rows[0]].shape[:-1], self.width_of(inputs)))

    def shapes(self, lead: Sequence[int], width: int) -> dict[str, tuple[int, ...]]:
        """Every tensor's shape, by name: `lead` before a row, none before a vector."""
        return {t.name: (*(() if t.role is Role.VECTOR else lead), self.row_length(t.name, width)) for t in self.tensors}

    # --- gate and up, and the tensors that hold them ---

    def assemble(self, values: Tensors) -> dict[str, torch.Tensor]:
        """The tensors of a call from values by role: gate and up put together, all others as they are."""
        tensors = {}
        for each in self.tensors:
            parts = [values[part] for part in _parts(each)]
            if each.role is Role.PAIRS:
                tensors[each.name] = torch.stack(parts, dim=-1).flatten(-2)
            else:
                tensors[each.name] = torch.cat(parts, dim=-1) if each.role is Role.HALVES else parts[0]
        return tensors

    def split(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """The inverse of `assemble`, as views: values by role, and the vectors."""
        values: dict[str, torch.Tensor] = {}
        for each in self.tensors:
            tensor = inputs[each.name]
            if each.role is Role.HALVES:
                gate, up = tensor.chunk(2, dim=-1)
                values |= {"gate": gate, "up": up}
            elif each.role is Role.PAIRS:
                values |= {"gate": tensor[..., 0::2], "up": tensor[..., 1::2]}
            else:
                values[each.name] = tensor
        return values

    # --- calls ---

    def arguments(self, tensors: Tensors, contract: Values) -> tuple[Any, ...]:
        """The positional arguments of a call: the tensors, then the contract's values of the parameters."""
        return (*(tensors[name] for name in self.inputs), *(contract.value(p.name) for p in self.parameters))

    def signature(self, contract: Values | None = None) -> Signature:
        """The signature of a call; the parameters' defaults are the contract's values, or without one the declared."""
        by_position = SignatureParameter.POSITIONAL_OR_KEYWORD
        tensors = [SignatureParameter(name, by_position) for name in self.inputs]
        numbers = [
            SignatureParameter(p.name, by_position, default=contract.value(p.name) if contract else p.default)
            for p in self.parameters
        ]
        return Signature(tensors + numbers)

    def switch_values(self, contract: Values) -> dict[str, tuple[float, ...]]:
        """Role -> the values at which the formula changes its form under `contract`; empty for most operators."""
        found: dict[str, tuple[float, ...]] = {}
        for each in self.switches:
            found[each.role] = (*found.get(each.role, ()), each.sign * contract.value(each.parameter))
        return found

    def switched_by(self, parameter: Parameter) -> bool:
        """Whether the formula changes its form at a value of that parameter."""
        return any(each.parameter == parameter.name for each in self.switches)


def _parts(tensor: Tensor) -> tuple[str, ...]:
    return PARTS if tensor.role in _TWO_IN_ONE else (tensor.name,)

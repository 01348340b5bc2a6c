"""What an operator is, said once: tensors by role, parameters, roundings, how its launch is made.

The checks, the remembered calls and ``torch.ops.numba_kernels`` follow from it (runtime/calls.py, torch_ops.py). Names, order and
defaults of the arguments are those of the public function that carries the declaration (operators.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:  # importing the package costs milliseconds; the kernels, and Numba, come with the first call
    from .plans import Plan
    from .runtime.arrays import Rows

CONTROLS = ("contract", "enable_pdl")  # the last two arguments of every operator


class Role(Enum):
    """What a tensor is to an operator; ``width`` is the output's."""

    ROWS = auto()  # (…, width), read
    WRITTEN_ROWS = auto()  # (…, width), read and written in place
    VECTOR = auto()  # (width,), read; of the rows' dtype or fp32
    HALVES = auto()  # (…, 2 · width), read: gate, then up
    PAIRS = auto()  # (…, 2 · width), read: gate and up alternate, or are HALVES where the flag ``interleaved`` is False

    @property
    def double(self) -> bool:
        """Whether a row holds two widths."""
        return self in (Role.HALVES, Role.PAIRS)


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    role: Role

    @property
    def written(self) -> bool:
        return self.role is Role.WRITTEN_ROWS


@dataclass(frozen=True, slots=True)
class Number:
    """A parameter that is a finite real number of at least ``least``. A kernel gets the bits of its fp32 value."""

    name: str
    least: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Flag:
    """A parameter that is True or False, and chooses a form of the kernel."""

    name: str


@dataclass(frozen=True, slots=True)
class Rounding:
    """A place where an implementation may round or not: a letter of the contract code and how many choices it has."""

    letter: str
    choices: int = 2


SUM = Rounding("R")  # normalise the fp32 sum, or the stored one
NORM = Rounding("W")  # multiply by the weight in fp32, or round before that too
ACTIVATION = Rounding("S")  # round once, or act(gate) too
EPS = Number("eps", least=0.0)


@dataclass(frozen=True, slots=True)
class Checked:
    """A call whose arguments were checked: rows by argument, the choice of each rounding, fp32 bits of numbers, flags."""

    rows: Mapping[str, Rows]
    choices: Mapping[str, int]
    numbers: Mapping[str, int]
    flags: Mapping[str, bool]


class Launch(Protocol):
    """How an operator becomes a kernel: what its buffers are, and the plan of a checked call."""

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of arguments; one that the operator has not is its input."""
        ...

    def plan(self, call: Checked) -> Plan: ...


@dataclass(frozen=True)
class Norm:
    """``out = (input + residual) · rstd · (weight + weight_bias)``, by the kernels for norms."""

    weight_bias: float = 0.0
    buffers: ClassVar[tuple[str, ...]] = ("input", "residual", "weight", "out")

    def plan(self, call: Checked) -> Plan:
        from .kernels.config import NormOperation
        from .plans import NormPlan

        rows = call.rows
        x, weight = rows["input"], rows["weight"]
        return NormPlan(
            rows=x.count,
            width=x.width,
            x_stride=x.stride,
            residual_stride=rows.get("residual", x).stride,
            out_stride=rows.get("out", x).stride,
            operation=NormOperation(
                adds_residual="residual" in rows,
                storage=x.array.format,
                weight=weight.array.format,
                rounds_sum=call.choices.get("R") == 1,
                rounds_norm=call.choices["W"] == 1,
                weight_bias=self.weight_bias,
            ),
            eps_bits=call.numbers["eps"],
        )


@dataclass(frozen=True)
class Gated:
    """``out = act(gate) · up``, by the gated kernels."""

    activation: str
    buffers: ClassVar[tuple[str, ...]] = ("input", "out")

    def plan(self, call: Checked) -> Plan:
        from .kernels.config import GatedOperation
        from .plans import GatedPlan

        x, out = call.rows["input"], call.rows["out"]
        return GatedPlan(
            rows=x.count,
            width=out.width,
            x_stride=x.stride,
            out_stride=out.stride,
            parameters=tuple(call.numbers.values()),
            operation=GatedOperation(
                self.activation,
                storage=x.array.format,
                rounding=f"S{call.choices['S']}",
                interleaved=call.flags.get("interleaved", False),
            ),
        )


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator. ``signature`` is its public function's: tensors, parameters and ``out`` in any order, then CONTROLS.

    One that has an ``out`` argument returns it; any other writes its WRITTEN_ROWS in place. The first tensor is ``input``.
    """

    name: str
    signature: inspect.Signature
    tensors: tuple[Tensor, ...]
    parameters: tuple[Number | Flag, ...]
    roundings: tuple[Rounding, ...]
    launch: Launch

    def __post_init__(self) -> None:
        given = [n for n in self.arguments if n != "out"]
        needed = [*(t.name for t in self.tensors), *(p.name for p in self.parameters), *CONTROLS]
        if given != needed or self.tensors[0].name != "input":
            raise TypeError(f"{self.name}: arguments {given} beside a declaration of {needed}")

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names, in the order of the signature."""
        return tuple(self.signature.parameters)

    @property
    def returns_out(self) -> bool:
        return "out" in self.signature.parameters

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the arguments that it writes."""
        return ("out",) if self.returns_out else tuple(t.name for t in self.tensors if t.written)

    @property
    def halves_input(self) -> bool:
        """Whether a row of the output is half as long as one of the input; where it is not, ``out`` may be the input itself."""
        return self.tensors[0].role.double

    @property
    def codes(self) -> tuple[str, ...]:
        """Its contract codes, the first letter's choice varying fastest."""
        choices = product(*(range(r.choices) for r in reversed(self.roundings)))
        return tuple("".join(f"{r.letter}{c}" for r, c in zip(self.roundings, reversed(each), strict=True)) for each in choices)

    def choices(self, code: str) -> dict[str, int]:
        """The choice of each rounding by its letter, of one of its codes."""
        return {letter: int(choice) for letter, choice in zip(code[::2], code[1::2], strict=True)}

    def default(self, argument: str) -> Any:
        return self.signature.parameters[argument].default

    def buffer_arguments(self) -> tuple[str, ...]:
        """The argument that each of the kernel's buffers is."""
        return tuple(name if name in self.signature.parameters else "input" for name in self.launch.buffers)


OPERATORS: dict[str, Operator] = {}  # filled by operators.py, in its order


def declare(
    function: Callable[..., Any],
    tensors: Mapping[str, Role],
    parameters: tuple[Number | Flag, ...],
    roundings: tuple[Rounding, ...],
    launch: Launch,
) -> Operator:
    """The declaration that ``function`` carries, entered in OPERATORS."""
    named = tuple(Tensor(name, role) for name, role in tensors.items())
    operator = Operator(function.__name__, inspect.signature(function), named, parameters, roundings, launch)
    OPERATORS[operator.name] = operator
    return operator

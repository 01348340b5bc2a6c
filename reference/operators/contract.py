"""A rounding contract as a value: where a 16-bit implementation rounds, and the numbers that it is called with.

| code | the value that is squared and normalised | code | the weight multiply |
|---|---|---|---|
| R0 | the fp32 sum input + residual | W0 | (h * rstd) * w in fp32, rounded once |
| R1 | that sum rounded to the storage dtype | W1 | h * rstd rounded to the storage dtype, then times w, rounded again |

Gated activations: S0 computes act(gate) * up in fp32 and rounds once; S1 rounds act(gate) to the storage dtype first;
S2 rounds after every operation. The new residual is the fp32 sum rounded once in every contract. For fp32 storage the
codes of an operator coincide.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reference.operators import Operator, operator
from reference.operators.declaration import DEFAULT_EPS, FP32_MAX, KNOWN_CODES

_FP32_UNDERFLOW = 2.0**-150  # up to here a positive number rounds to fp32 zero


@dataclass(frozen=True, slots=True)
class Contract:
    """Where to round, and with which numbers.

    `code` is one of an operator's codes. `eps` stands inside the root, in fp32; zero is allowed, as in the libraries.
    `weight_bias` is added to the weight in fp32, or, with `bias_in_fp32=False`, rounded to the weight's dtype (what
    `1 + weight` does in a 16-bit module). `parameters`: the values of what else the operator declares, by name. Raises
    ValueError for an unknown code, or for an eps that is negative, not finite in fp32, or positive but zero in fp32.
    """

    code: str
    eps: float = DEFAULT_EPS
    weight_bias: float = 0.0
    bias_in_fp32: bool = True
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.code not in KNOWN_CODES:
            raise ValueError(f"unknown contract code {self.code!r}; known: {', '.join(KNOWN_CODES)}")
        if not 0.0 <= self.eps <= FP32_MAX:
            raise ValueError(f"eps must be finite in fp32 and not negative, got {self.eps}")
        if 0.0 < self.eps <= _FP32_UNDERFLOW:
            raise ValueError(f"eps {self.eps} is zero in fp32")
        if not math.isfinite(self.weight_bias):
            raise ValueError(f"weight_bias must be finite, got {self.weight_bias}")

    @property
    def rounds_sum(self) -> bool:
        """R1: the sum is rounded to the storage dtype before it is squared and normalised."""
        return "R1" in self.code

    @property
    def rounds_norm(self) -> bool:
        """W1: the normalised value is rounded to the storage dtype before the weight multiplies it."""
        return "W1" in self.code

    @property
    def rounds_activation(self) -> bool:
        """S1, S2: the activation is rounded to the storage dtype before `up` multiplies it."""
        return self.code in ("S1", "S2")

    @property
    def rounds_every_operation(self) -> bool:
        """S2: every operation is rounded to the storage dtype."""
        return self.code == "S2"

    def value(self, name: str) -> float:
        """The value of the parameter of that name. KeyError for one that the contract does not have."""
        return self.eps if name == "eps" else dict(self.parameters)[name]

    def with_values(self, values: Mapping[str, float]) -> Contract:
        """The contract with other values of its parameters, by name. KeyError for one that it does not have."""
        others = dict(self.parameters)
        if unknown := set(values) - {"eps", *others}:
            raise KeyError(f"{self} has no {', '.join(sorted(unknown))}")
        parameters = tuple((name, values.get(name, value)) for name, value in others.items())
        return replace(self, eps=values.get("eps", self.eps), parameters=parameters)

    def in_fp32(self) -> Contract:
        """The contract with the fp32 numbers nearest to its eps and parameters: what a kernel's float parameters hold."""
        nearest = tuple((name, _fp32(value)) for name, value in self.parameters)
        return replace(self, eps=_fp32(self.eps), parameters=nearest)

    def to_json(self) -> dict[str, Any]:
        """Plain data: what `from_json` takes."""
        return {
            "code": self.code,
            "eps": self.eps,
            "weight_bias": self.weight_bias,
            "bias_in_fp32": self.bias_in_fp32,
            **dict(self.parameters),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Contract:
        """The contract in a record; numbers under other names are its parameters. ValueError says what is wrong with it."""
        values = dict(record)
        try:
            own = {name: values.pop(name) for name in ("code", "eps", "weight_bias", "bias_in_fp32") if name in values}
            return cls(**own, parameters=tuple((name, float(value)) for name, value in values.items()))
        except TypeError as error:
            raise ValueError(f"not a contract record: {error}") from None

    def __str__(self) -> str:
        if self.code.startswith("S"):
            numbers = [f"{name} {value:g}" for name, value in self.parameters]
        else:
            numbers = [f"eps {self.eps:g}"]
            if self.weight_bias and not self.bias_in_fp32:
                numbers.append("bias in the weight's dtype")
        return f"{self.code} ({', '.join(numbers)})" if numbers else self.code


def _fp32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def contract_of(op: str | Operator, code: str = "", eps: float = DEFAULT_EPS, **parameters: float) -> Contract:
    """The contract of `op` with that code ("": its first) and the operator's own bias and parameters, but for those given.

    Raises ValueError for a code that `op` does not have, and for a value outside a parameter's range.
    """
    op = operator(op)
    declared = {p.name: p.default for p in op.parameters if p.name != "eps"}
    made = Contract(code or op.codes[0], eps, op.weight_bias, parameters=tuple((declared | parameters).items()))
    check_contract(op, made)
    return made


def corners(op: str | Operator, eps: float = DEFAULT_EPS, **parameters: float) -> tuple[Contract, ...]:
    """Every contract of `op`, one a code. Where the bias is added is not a corner."""
    op = operator(op)
    return tuple(contract_of(op, code, eps, **parameters) for code in op.codes)


def check_contract(op: str | Operator, contract: Contract) -> None:
    """Raises ValueError when `contract` belongs to another operator: by its code, its bias or its parameters."""
    op = operator(op)
    if contract.code not in op.codes:
        raise ValueError(f"{contract.code} is no contract of {op.name}; known: {', '.join(op.codes)}")
    if contract.weight_bias != op.weight_bias:
        raise ValueError(f"{op.name} has weight_bias {op.weight_bias:g}, the contract {contract.weight_bias:g}")
    declared = [p.name for p in op.parameters if p.name != "eps"]
    given = [name for name, _ in contract.parameters]
    if sorted(given) != sorted(declared):
        raise ValueError(f"{op.name} has the parameters {declared}, the contract {given}")
    for parameter in op.parameters:
        parameter.check(contract.value(parameter.name))

"""Rounding contracts as values: where a 16-bit implementation rounds, its eps, and how a Gemma weight gets its bias.

| code | the value that is squared and normalised | code | the weight multiply |
|---|---|---|---|
| R0 | the fp32 sum input + residual | W0 | (h * rstd) * w in fp32, rounded once |
| R1 | that sum rounded to the storage dtype | W1 | h * rstd rounded to the storage dtype, then times w, rounded again |

Gated activations: S0 computes act(gate) * up in fp32 and rounds once; S1 rounds act(gate) to the storage dtype first.
The new residual is the fp32 sum rounded once in every contract. For fp32 storage the codes of a family coincide.
Imports this package's operators and claims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from reference.claims import claim, libraries
from reference.operators import CODES, Operator, operator

DEFAULT_EPS = 1e-6  # FlashInfer's default; fixed here because libraries' own defaults differ


@dataclass(frozen=True, slots=True)
class Contract:
    """Where to round, and with which eps and bias.

    `code` is one of an operator family's codes. `eps` stands inside the root, in fp32; zero is allowed, as in the
    libraries. `weight_bias` is added to the weight in fp32, or, with `bias_in_fp32=False`, rounded to the weight's
    dtype (what `1 + weight` does in a 16-bit module). Raises ValueError for an unknown code, or for an eps that is
    negative, not finite in fp32, or positive but zero in fp32.
    """

    code: str
    eps: float = DEFAULT_EPS
    weight_bias: float = 0.0
    bias_in_fp32: bool = True

    def __post_init__(self) -> None:
        if not any(self.code in codes for codes in CODES.values()):
            allowed = ", ".join(code for codes in CODES.values() for code in codes)
            raise ValueError(f"unknown contract code {self.code!r}; known: {allowed}")
        if not 0.0 <= self.eps <= _FP32_MAX:
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
        """S1: the activation is rounded to the storage dtype before `up` multiplies it."""
        return self.code == "S1"

    def __str__(self) -> str:
        if self.code in CODES["gated"]:
            return self.code
        bias = "" if self.bias_in_fp32 or not self.weight_bias else ", bias in the weight's dtype"
        return f"{self.code} (eps {self.eps:g}{bias})"


_FP32_MAX = float.fromhex("0x1.fffffep127")
_FP32_UNDERFLOW = 2.0**-150  # up to here a positive number rounds to fp32 zero


def contract(op: str | Operator, spelling: str = "", eps: float = DEFAULT_EPS) -> Contract:
    """The contract of `op` that `spelling` names: a code, in either case, or a library whose claim is on record.

    "" is the operator's first code (R0W0, W0, S0: FlashInfer's). The bias is the operator's own. Raises ValueError,
    with the list of what is allowed, for anything else.
    """
    op = operator(op)
    word = spelling.strip()
    if not word:
        return Contract(op.codes[0], eps, op.weight_bias)
    if word.upper() in op.codes:
        return Contract(word.upper(), eps, op.weight_bias)
    row = claim(word.lower(), op)
    if row is None:
        allowed = ", ".join(op.codes + libraries(op))
        raise ValueError(f"unknown contract {spelling!r} for {op.name}; known: {allowed}")
    return Contract(row.code, eps, op.weight_bias, row.bias_in_fp32)


def corners(op: str | Operator, eps: float = DEFAULT_EPS) -> tuple[Contract, ...]:
    """Every contract of `op`: four for add_norm, two for norm and gated. Where the bias is added is not a corner."""
    op = operator(op)
    return tuple(Contract(code, eps, op.weight_bias) for code in op.codes)


def check_contract(op: str | Operator, contract: Contract) -> None:
    """Raises ValueError when `contract` belongs to another operator: a code or a bias that `op` does not have."""
    op = operator(op)
    if contract.code not in op.codes:
        raise ValueError(f"{contract.code} is no contract of {op.name}; known: {', '.join(op.codes)}")
    if contract.weight_bias != op.weight_bias:
        raise ValueError(f"{op.name} has weight_bias {op.weight_bias:g}, the contract {contract.weight_bias:g}")

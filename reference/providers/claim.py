"""A claim: one library's contract for some operators, as read in its source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from reference.operators import OPERATORS, Operator, operator
from reference.operators.contract import Contract, contract_of
from reference.operators.declaration import DEFAULT_EPS

ADD = ("fused_add_rmsnorm",)
GEMMA_ADD = ("gemma_fused_add_rmsnorm",)
NORM = ("rmsnorm",)
GEMMA_NORM = ("gemma_rmsnorm",)
GATED = ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")
# For providers that are made from the declarations and so have every operator with an activation: by its last code.
ROUNDING_ACTIVATION = tuple(op.name for op in OPERATORS.values() if op.activation and op.codes[-1] == "S1")
ROUNDING_EVERY_OPERATION = tuple(op.name for op in OPERATORS.values() if op.codes[-1] == "S2")


@dataclass(frozen=True, slots=True)
class Claim:
    """One library's contract for the operators in `ops`, as read in `source`; never inferred from its outputs.

    `tested` says where a test of this repository holds it against the plain arithmetic: "cpu", "gpu" (needs a CUDA
    device and the library) or "" (read only). `note` is what a reader of the table should know.
    """

    library: str
    ops: tuple[str, ...]
    code: str
    source: str
    tested: str = ""
    note: str = ""
    bias_in_fp32: bool = True  # the Gemma forms only

    def contract(self, op: str | Operator, eps: float = DEFAULT_EPS, **parameters: float) -> Contract:
        """The contract claimed for `op`, with the operator's own bias and parameters, and this project's eps."""
        return replace(contract_of(op, self.code, eps, **parameters), bias_in_fp32=self.bias_in_fp32)


def with_operators(*claims: Claim) -> tuple[Claim, ...]:
    """Those of `claims` that are about an operator."""
    return tuple(each for each in claims if each.ops)


def find(claims: Iterable[Claim], library: str, op: str | Operator) -> Claim | None:
    """The claim of `library` for `op` among `claims`, or None."""
    name = operator(op).name
    return next((each for each in claims if each.library == library and name in each.ops), None)

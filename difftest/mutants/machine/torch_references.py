"""A mutant of the plain references: the formulas, or the fp32 arithmetic that they are computed by, on their own text.

The judge reads the same formulas; so the mutated text is run beside them, and nothing of the package is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from difftest.mutants.machine.listing import Mutant
from difftest.providers.file import FileCandidate
from reference.arithmetic import Fp32, compute
from reference.contracts import Contract, contract
from reference.operators import Operator, operator
from reference.providers.library import in_signature

# What a mutant is tried as: operator, dtype, contract. A rounding to one 16-bit format leaves what is of that format as it is,
# so the contracts that store a value on the way are tried in both.
FORMS = (
    ("fused_add_rmsnorm", "bf16", contract("fused_add_rmsnorm", "R0W0")),
    ("fused_add_rmsnorm", "bf16", contract("fused_add_rmsnorm", "R1W1")),
    ("fused_add_rmsnorm", "fp32", contract("fused_add_rmsnorm", "R0W0")),  # where a sum that is stored keeps all its bits
    ("gemma_rmsnorm", "fp16", contract("gemma_rmsnorm", "W1")),
    ("gemma_rmsnorm", "bf16", replace(contract("gemma_rmsnorm", "W0"), bias_in_fp32=False)),
    ("rmsnorm", "fp32", contract("rmsnorm", "W0")),
    ("silu_and_mul", "bf16", contract("silu_and_mul", "S1")),
    ("silu_and_mul", "fp16", contract("silu_and_mul", "S1")),
    ("silu_and_mul", "fp32", contract("silu_and_mul", "S0")),
    ("gelu_and_mul", "bf16", contract("gelu_and_mul", "S0")),
    ("gelu_and_mul", "fp32", contract("gelu_and_mul", "S0")),
    ("gelu_tanh_and_mul", "fp16", contract("gelu_tanh_and_mul", "S0")),
    ("gelu_tanh_and_mul", "fp32", contract("gelu_tanh_and_mul", "S0")),
    ("swigluoai_and_mul", "bf16", contract("swigluoai_and_mul", "S0")),
    ("swigluoai_and_mul", "fp16", contract("swigluoai_and_mul", "S1")),
    ("swigluoai_and_mul", "bf16", contract("swigluoai_and_mul", "S2")),
    ("swigluoai_and_mul", "fp16", contract("swigluoai_and_mul", "S2")),
)


@dataclass(frozen=True, slots=True)
class Formula:
    """Operators and an arithmetic, one of them from a mutant's text."""

    operators: dict[str, Operator]
    arithmetic: type[Fp32]

    def provider(self, op: str, contract: Contract) -> FileCandidate:
        """The operator by this formula over this arithmetic."""
        which = self.operators.get(op, operator(op))
        names = tuple(p.name for p in which.parameters)

        def native(*arguments: Any) -> Any:
            tensors = dict(zip(which.inputs, arguments, strict=False))
            numbers = dict(zip(names, arguments[len(tensors) :], strict=False))
            arithmetic = self.arithmetic({name: tensors[name].dtype for name in which.inputs}, which.rows[0])
            outputs = compute(which, tensors, contract.with_values(numbers), arithmetic)
            return tuple(outputs.values()) if which.mutated else outputs["output"]

        return FileCandidate(op, in_signature(op, native, contract, in_place=False))


def formula_of(mutant: Mutant) -> Formula:
    """What the mutant's text says. Raises what it raises."""
    namespace: dict[str, Any] = {"__name__": mutant.source.module, **ROUNDINGS}
    exec(compile(mutant.text(), f"<{mutant.name}>", "exec"), namespace)
    found = [each for name in ("NORMS", "GATED") for each in namespace.get(name, ())]
    return Formula({each.name: replace(operator(each.name), formula=each.formula) for each in found}, namespace.get("Fp32", Fp32))


def _through(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda value: value.to(dtype).to(value.dtype) if isinstance(value, torch.Tensor) else value


def _cut(extra: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """fp32 values without the 16 lowest bits; `extra` is added before they go."""

    def cut(value: torch.Tensor) -> torch.Tensor:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        word = (value.contiguous().view(torch.int32) + extra) & -(1 << 16)
        return torch.where(torch.isfinite(value), word.view(torch.float32), value)

    return cut


ROUNDINGS = {
    "through_fp16": _through(torch.float16),
    "through_bf16": _through(torch.bfloat16),
    "toward_zero": _cut(0),
    "half_away": _cut(1 << 15),
}

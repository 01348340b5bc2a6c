"""Which library rounds where: one row of data for each library and operator, with the source that it was read from.

The contracts' library spellings, the providers' claims and the documentation's table all come from here. Imports nothing
but this package's operators.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference.operators import OPERATORS, Operator, operator


@dataclass(frozen=True, slots=True)
class Claim:
    """One library's contract for the operators in `ops`, as read in `source`; never inferred from its outputs."""

    library: str
    ops: tuple[str, ...]
    code: str
    source: str
    bias_in_fp32: bool = True  # the Gemma forms only


_ADD = ("fused_add_rmsnorm",)
_GEMMA_ADD = ("gemma_fused_add_rmsnorm",)
_NORM = ("rmsnorm",)
_GEMMA_NORM = ("gemma_rmsnorm",)
_GATED = tuple(name for name, op in OPERATORS.items() if op.family == "gated")

CLAIMS: tuple[Claim, ...] = (
    Claim("flashinfer", _ADD + _GEMMA_ADD, "R0W0", "flashinfer-python 0.7.2.post1"),
    Claim("flashinfer", _NORM + _GEMMA_NORM, "W0", "flashinfer-python 0.7.2.post1"),
    Claim("flashinfer", _GATED, "S0", "flashinfer-python 0.7.2.post1"),
    Claim("torch", _ADD + _GEMMA_ADD, "R1W0", "torch 2.13, F.rms_norm after a separate add"),
    Claim("torch", _NORM + _GEMMA_NORM, "W0", "torch 2.13, F.rms_norm"),
    Claim("torch", _GATED, "S1", "torch 2.13, F.silu(gate) * up"),
    Claim("hf", _ADD, "R1W1", "transformers 5.17.0, LlamaRMSNorm after a separate add"),
    Claim("hf", _NORM, "W1", "transformers 5.17.0, LlamaRMSNorm"),
    Claim("hf", _GATED, "S1", "transformers 5.17.0, LlamaMLP"),
    Claim("quack", _ADD, "R0W0", "quack-kernels 0.6.5, quack/rmsnorm.py"),
    Claim("quack", _NORM, "W0", "quack-kernels 0.6.5, quack/rmsnorm.py"),
    Claim("vllm", _ADD, "R1W0", "vllm, csrc/layernorm_kernels.cu"),
    Claim("vllm", _GATED, "S1", "vllm, csrc/activation_kernels.cu"),
    Claim("sglang", _ADD + _GEMMA_ADD, "R0W0", "sgl-kernel"),
    Claim("sglang", _GATED, "S0", "sgl-kernel"),
)


def claim(library: str, op: str | Operator) -> Claim | None:
    """What `library` claims for `op`, or None when it has no such operator, or is not in the table."""
    name = operator(op).name
    for row in CLAIMS:
        if row.library == library and name in row.ops:
            return row
    return None


def libraries(op: str | Operator) -> tuple[str, ...]:
    """The libraries with a claim for `op`, in the table's order."""
    name = operator(op).name
    return tuple(dict.fromkeys(row.library for row in CLAIMS if name in row.ops))

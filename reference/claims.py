"""Which library rounds where: one row of data per library and contract, with the source that it was read from.

The contracts' library spellings, the providers' claims and the documentation's table all come from here. Imports
nothing but this package's operators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reference.operators import OPERATORS, Operator, operator
from reference.operators.contract import Contract, contract_of
from reference.operators.declaration import DEFAULT_EPS


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


_ADD = ("fused_add_rmsnorm",)
_GEMMA_ADD = ("gemma_fused_add_rmsnorm",)
_NORM = ("rmsnorm",)
_GEMMA_NORM = ("gemma_rmsnorm",)
_GATED = tuple(name for name, op in OPERATORS.items() if op.family == "gated")

_FLASHINFER = "flashinfer-python 0.7.2.post1"
_HF = "transformers 5.17.0"
_LIGER = "liger-kernel 0.8.5"
_QUACK = "quack-kernels 0.6.5, quack/rmsnorm.py"
_SGL = "sglang, sgl-kernel/csrc/elementwise"
_TORCH = "torch 2.13"
_VLLM = "vllm, csrc/libtorch_stable"
_VLLM_OLD = "vllm 0.x, csrc"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "flashinfer",
        _ADD + _GEMMA_ADD,
        "R0W0",
        f"{_FLASHINFER}: data/include/flashinfer/norm.cuh and norm/kernels/fused_add_rmsnorm.py",
        "gpu",
    ),
    Claim(
        "flashinfer",
        _NORM + _GEMMA_NORM,
        "W0",
        f"{_FLASHINFER}: data/include/flashinfer/norm.cuh and norm/kernels/rmsnorm.py",
        "gpu",
    ),
    Claim(
        "flashinfer",
        _GATED,
        "S0",
        f"{_FLASHINFER}: jit/activation.py, data/include/flashinfer/activation.cuh",
        "gpu",
        "gelu is 1 + erf and tanh-gelu 1 + tanh (approximate), so the negative tail cancels",
    ),
    Claim("sglang", _ADD + _GEMMA_ADD, "R0W0", f"{_SGL}: FlashInfer's norm.cuh"),
    Claim("sglang", _NORM + _GEMMA_NORM, "W0", f"{_SGL}: FlashInfer's norm.cuh"),
    Claim(
        "sglang",
        _GATED,
        "S1",
        f"{_SGL}/activation.cu",
        "",
        "its activations are T -> T; early releases passed FlashInfer float ones (S0)",
    ),
    Claim("quack", _ADD + _GEMMA_ADD, "R0W0", _QUACK, "gpu"),
    Claim("quack", _NORM + _GEMMA_NORM, "W0", _QUACK, "gpu"),
    Claim("tensorrt-llm", _GATED, "S0", "calls FlashInfer's silu_and_mul", "", "not read again for this table"),
    Claim("torch", _ADD + _GEMMA_ADD, "R1W0", f"{_TORCH}: F.rms_norm after a separate add", "cpu"),
    Claim("torch", _NORM + _GEMMA_NORM, "W0", f"{_TORCH}: F.rms_norm", "cpu"),
    Claim("torch", _GATED, "S1", f"{_TORCH}: F.silu or F.gelu of the gate, then a multiply", "cpu"),
    Claim(
        "torch-compile",
        _ADD + _GEMMA_ADD,
        "R0W0",
        f"{_TORCH}: Inductor on reference/providers/torch_compile.py",
        "cpu",
        "of fp32 arithmetic with one cast at the end; Inductor may drop a module's inner roundings",
    ),
    Claim("torch-compile", _NORM + _GEMMA_NORM, "W0", f"{_TORCH}: Inductor", "cpu"),
    Claim("torch-compile", _GATED, "S0", f"{_TORCH}: Inductor", "cpu"),
    Claim("hf", _ADD, "R1W1", f"{_HF}: models/llama LlamaRMSNorm after a separate add", "gpu"),
    Claim("hf", _NORM, "W1", f"{_HF}: models/llama LlamaRMSNorm", "gpu"),
    Claim("hf", _GEMMA_ADD, "R1W0", f"{_HF}: models/gemma GemmaRMSNorm after a separate add", "gpu"),
    Claim("hf", _GEMMA_NORM, "W0", f"{_HF}: models/gemma GemmaRMSNorm", "gpu"),
    Claim("hf", _GATED, "S1", f"{_HF}: models/llama LlamaMLP with ACT2FN", "gpu"),
    Claim("liger", _ADD, "R1W1", f"{_LIGER}: ops/fused_add_rms_norm.py, casting_mode llama", "gpu"),
    Claim("liger", _NORM, "W1", f"{_LIGER}: ops/rms_norm.py, casting_mode llama", "gpu"),
    Claim("liger", _GEMMA_ADD, "R1W0", f"{_LIGER}: ops/fused_add_rms_norm.py, casting_mode gemma, offset 1", "gpu"),
    Claim("liger", _GEMMA_NORM, "W0", f"{_LIGER}: ops/rms_norm.py, casting_mode gemma, offset 1", "gpu"),
    Claim("liger", ("silu_and_mul",), "S1", f"{_LIGER}: ops/swiglu.py", "gpu"),
    Claim("liger", ("gelu_tanh_and_mul",), "S1", f"{_LIGER}: ops/geglu.py", "gpu", "1 + tanh: the negative tail cancels"),
    Claim("vllm", _ADD, "R1W0", f"{_VLLM}/layernorm_kernels.cu", "", "W1 for a while in 2026; an R0 change is open"),
    Claim("vllm", _NORM, "W0", f"{_VLLM}/layernorm_kernels.cu"),
    Claim("vllm", _GATED, "S1", f"{_VLLM}/activation_kernels.cu"),
    Claim("vllm-0.x", _ADD, "R1W1", f"{_VLLM_OLD}/layernorm_kernels.cu"),
    Claim("vllm-0.x", _NORM, "W1", f"{_VLLM_OLD}/layernorm_kernels.cu"),
    Claim("vllm-0.x", _GATED, "S1", f"{_VLLM_OLD}/activation_kernels.cu"),
    Claim("vllm-python", _ADD, "R0W1", "vllm, RMSNorm.forward_native"),
    Claim("vllm-python", _NORM, "W1", "vllm, RMSNorm.forward_native"),
    Claim("triton", _ADD + _GEMMA_ADD, "R0W0", "reference/providers/triton_kernels.py", "gpu"),
    Claim("triton", _NORM + _GEMMA_NORM, "W0", "reference/providers/triton_kernels.py", "gpu"),
    Claim("triton", _GATED, "S0", "reference/providers/triton_kernels.py", "gpu"),
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

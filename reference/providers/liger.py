"""Liger-Kernel: Triton kernels for training, which follow the Hugging Face modules' roundings."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

from reference.operators import operator
from reference.providers.claim import ADD, GEMMA_ADD, GEMMA_NORM, NORM, Claim
from reference.providers.layout import as_rows, require_dtype
from reference.providers.library import LibraryProvider

_WIDEST = 65536  # ops/utils.py, calculate_settings: MAX_FUSED_SIZE


_LIGER = "liger-kernel 0.8.5"
CLAIMS = (
    Claim("liger", ADD, "R1W1", f"{_LIGER}: ops/fused_add_rms_norm.py, casting_mode llama", "gpu"),
    Claim("liger", NORM, "W1", f"{_LIGER}: ops/rms_norm.py, casting_mode llama", "gpu"),
    Claim("liger", GEMMA_ADD, "R1W0", f"{_LIGER}: ops/fused_add_rms_norm.py, casting_mode gemma, offset 1", "gpu"),
    Claim("liger", GEMMA_NORM, "W0", f"{_LIGER}: ops/rms_norm.py, casting_mode gemma, offset 1", "gpu"),
    Claim("liger", ("silu_and_mul",), "S1", f"{_LIGER}: ops/swiglu.py", "gpu"),
    Claim("liger", ("gelu_tanh_and_mul",), "S1", f"{_LIGER}: ops/geglu.py", "gpu", "1 + tanh: the negative tail cancels"),
)


class Liger(LibraryProvider):
    """Liger's autograd functions, forward only: R1W1 and W1 (llama casting), R1W0 and W0 (Gemma), S1.

    add_norm: residual' = input + residual in T, then rstd from fp32(residual'). `casting_mode="llama"` rounds
    h * rstd to T before the weight; `"gemma"` with offset 1 keeps fp32 throughout. New tensors come out. Gated:
    `T(silu(fp32(gate))) * up` on the fused (..., 2 * width) tensor; tanh-gelu on its two halves, which its wrapper
    copies to make them contiguous. There is no erf gelu. Non-contiguous inputs are copied by the library too.

    The default Triton implementations are taken by module, so that no device-specific replacement can step in.
    Refused: rows wider than 65536 elements (one Triton block holds a row); a residual of another dtype.

    Source: liger-kernel 0.8.5, liger_kernel/ops/{rms_norm,fused_add_rms_norm,swiglu,geglu,utils}.py.
    """

    name = "liger"
    library = "liger"
    on_record = CLAIMS
    modules = ("triton", "liger_kernel.ops.rms_norm")
    distribution = "liger-kernel"

    def _refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        return f"liger takes rows of up to {_WIDEST} elements" if width > _WIDEST else None

    def _check(self, op: str, *tensors: torch.Tensor) -> None:
        as_rows(tensors[0].contiguous(), "input")
        if operator(op).mutated:
            require_dtype(tensors[1], "residual", tensors[0].dtype)

    def _native(self, op: str) -> Callable:
        which = operator(op)
        if which.activation == "silu":
            return import_module("liger_kernel.ops.swiglu").LigerFusedGateUpSiLUMulFunction.apply
        if which.activation == "gelu_tanh":
            gelu_mul = import_module("liger_kernel.ops.geglu").LigerGELUMulFunction

            def gated(input: torch.Tensor) -> torch.Tensor:
                return gelu_mul.apply(*input.chunk(2, dim=-1))

            return gated
        casting = "gemma" if which.weight_bias else "llama"
        offset = which.weight_bias
        if not which.mutated:
            rms_norm = import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction

            def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
                return rms_norm.apply(input, weight, eps, offset, casting, False)

            return norm
        fused_add = import_module("liger_kernel.ops.fused_add_rms_norm").LigerFusedAddRMSNormFunction

        def add_norm(
            input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return fused_add.apply(input, residual, weight, eps, offset, casting, False)

        return add_norm

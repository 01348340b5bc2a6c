"""vLLM's compiled CUDA operators, where vLLM is installed. Written from its source and not yet run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

from reference.operators import operator
from reference.providers.claim import ADD, GATED, NORM, ROUNDING_EVERY_OPERATION, Claim
from reference.providers.layout import (
    as_rows,
    require_aligned,
    require_contiguous,
    require_dtype,
    require_rows,
    require_unit_stride,
    vector_bytes,
)
from reference.providers.library import LibraryProvider

_VLLM = "vllm, csrc/libtorch_stable"
_VLLM_OLD = "vllm 0.x, csrc"
CLAIMS = (
    Claim("vllm", ADD, "R1W0", f"{_VLLM}/layernorm_kernels.cu", "", "W1 for a while in 2026; an R0 change is open"),
    Claim("vllm", NORM, "W0", f"{_VLLM}/layernorm_kernels.cu"),
    Claim("vllm", GATED, "S1", f"{_VLLM}/activation_kernels.cu"),
    Claim(
        "vllm",
        ROUNDING_EVERY_OPERATION,
        "S0",
        f"{_VLLM}/activation_kernels.cu",
        "",
        "clamps by fminf and fmaxf: a NaN is lost",
    ),
    Claim("vllm-0.x", ADD, "R1W1", f"{_VLLM_OLD}/layernorm_kernels.cu"),
    Claim("vllm-0.x", NORM, "W1", f"{_VLLM_OLD}/layernorm_kernels.cu"),
    Claim("vllm-0.x", GATED, "S1", f"{_VLLM_OLD}/activation_kernels.cu"),
    Claim("vllm-python", ADD, "R0W1", "vllm, RMSNorm.forward_native"),
    Claim("vllm-python", NORM, "W1", "vllm, RMSNorm.forward_native"),
)


class Vllm(LibraryProvider):
    """`torch.ops._C.{fused_add_rms_norm, rms_norm, *_and_mul}`: R1W0, W0, S1; add_norm in place.

    The sum is rounded to T and stored, squares and the normalised value come from it; `T(x * rstd * fp32(weight))`.
    Releases before that kernel, and one stretch of 2026, round the normalised value first (R1W1: `vllm-0.x`).
    Gated: `T(act(fp32(gate)))`, then times up. No Gemma form among the compiled operators. Not yet run: no machine of
    this project has vLLM installed.

    Refused: a weight of another dtype; zero rows for the norms (empty grid); misaligned vectors; tensors that are not
    contiguous where the kernel ignores strides.

    Source: vllm, csrc/libtorch_stable/layernorm_kernels.cu and activation_kernels.cu, vllm/_custom_ops.py.
    """

    name = "vllm"
    library = "vllm"
    on_record = CLAIMS
    modules = ("vllm", "vllm._custom_ops")
    distribution = "vllm"
    in_place = True

    def _check(self, op: str, *tensors: torch.Tensor) -> None:
        rows = as_rows(tensors[0], "input")
        if operator(op).activation:
            require_contiguous(rows, "input")
            require_aligned(rows, "input", vector_bytes(rows.shape[1] // 2, rows.element_size()))
            return
        require_rows(rows, "input")
        for name, tensor in zip(operator(op).inputs, tensors, strict=True):
            require_dtype(tensor, name, rows.dtype)
            require_unit_stride(tensor, name)
            each = tensor if tensor.ndim == 1 else as_rows(tensor, name)
            require_aligned(each, name, vector_bytes(each.shape[-1], each.element_size()))
        if operator(op).mutated:
            require_contiguous(tensors[1], "residual")

    def _native(self, op: str) -> Callable:
        which = operator(op)
        if which.activation:
            kernel = getattr(torch.ops._C, op)

            def gated(input: torch.Tensor, *parameters: float) -> torch.Tensor:
                output = input.new_empty((*input.shape[:-1], input.shape[-1] // 2))
                kernel(output, input, *parameters)
                return output

            return gated
        custom_ops = import_module("vllm._custom_ops")
        if not which.mutated:

            def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
                rows = as_rows(input, "input")
                output = torch.empty(rows.shape, dtype=rows.dtype, device=rows.device)
                custom_ops.rms_norm(output, rows, weight, eps)
                return output.view(input.shape)

            return norm

        def add_norm(
            input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            custom_ops.fused_add_rms_norm(as_rows(input, "input"), as_rows(residual, "residual"), weight, eps)
            return input, residual

        return add_norm

"""SGLang's compiled kernels (sgl-kernel), where they are installed. Written from their source and not yet run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

from reference.operators import operator
from reference.providers.claim import ADD, GATED, GEMMA_ADD, GEMMA_NORM, NORM, Claim
from reference.providers.layout import (
    as_rows,
    require_aligned,
    require_contiguous,
    require_dtype,
    require_rows,
    vector_bytes,
)
from reference.providers.library import LibraryProvider

_SGL = "sglang, sgl-kernel/csrc/elementwise"
CLAIMS = (
    Claim("sglang", ADD + GEMMA_ADD, "R0W0", f"{_SGL}: FlashInfer's norm.cuh"),
    Claim("sglang", NORM + GEMMA_NORM, "W0", f"{_SGL}: FlashInfer's norm.cuh"),
    Claim(
        "sglang",
        GATED,
        "S1",
        f"{_SGL}/activation.cu",
        "",
        "its activations are T -> T; early releases passed FlashInfer float ones (S0)",
    ),
)


class SGLang(LibraryProvider):
    """`sgl_kernel`'s functions, named as FlashInfer's: R0W0 and W0 (FlashInfer's norm kernels), S1; add_norm in place.

    Gated: its activations take and return T, so act(gate) is rounded before the multiply. Not yet run: no machine of
    this project has sgl-kernel installed.

    Refused: gated widths that are not multiples of 16 bytes (its vector loads of `up` would be misaligned); a weight of
    another dtype; zero rows; tensors that are not contiguous; misaligned addresses.

    Source: sglang, sgl-kernel/python/sgl_kernel/elementwise.py, sgl-kernel/csrc/elementwise/{activation,
    fused_add_rms_norm_kernel}.cu.
    """

    name = "sglang"
    library = "sglang"
    on_record = CLAIMS
    modules = ("sgl_kernel",)
    distribution = "sgl-kernel"
    in_place = True

    def _refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        if operator(op).activation and width * dtype.itemsize % 16:
            return f"sglang's activations take rows of whole 16-byte vectors, not {width} elements of {dtype}"
        return None

    def _check(self, op: str, *tensors: torch.Tensor) -> None:
        require_rows(tensors[0], "input")
        for name, tensor in zip(operator(op).inputs, tensors, strict=True):
            require_dtype(tensor, name, tensors[0].dtype)
            require_contiguous(tensor, name)
            rows = tensor if tensor.ndim == 1 else as_rows(tensor, name)
            require_aligned(rows, name, vector_bytes(rows.shape[-1], rows.element_size()))

    def _native(self, op: str) -> Callable:
        kernel = getattr(import_module("sgl_kernel"), op)
        which = operator(op)
        if which.activation:
            return kernel
        if not which.mutated:

            def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
                return kernel(as_rows(input, "input"), weight, eps).view(input.shape)

            return norm

        def add_norm(
            input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            kernel(as_rows(input, "input"), as_rows(residual, "residual"), weight, eps)
            return input, residual

        return add_norm

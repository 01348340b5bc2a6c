"""quack: CuTe DSL norms with clusters and asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

from reference.operators import operator
from reference.providers.claim import ADD, GEMMA_ADD, GEMMA_NORM, NORM, Claim
from reference.providers.layout import as_rows, require_aligned, require_unit_stride, vector_bytes
from reference.providers.library import LibraryProvider

_QUACK = "quack-kernels 0.6.5, quack/rmsnorm.py"
CLAIMS = (
    Claim("quack", ADD + GEMMA_ADD, "R0W0", _QUACK, "gpu"),
    Claim("quack", NORM + GEMMA_NORM, "W0", _QUACK, "gpu"),
)


class Quack(LibraryProvider):
    """`quack.rmsnorm.rmsnorm`: R0W0, W0; Gemma's `weight + 1` in fp32 through `weight_offset`; no gated operator.

    x = fp32(input) + fp32(residual), kept in fp32 (or added again from shared memory on wide rows);
    output = T(x * rstd * w); approximate rsqrt. The residual comes back only with `prenorm=True`, in a new tensor. A
    weight may be fp32 beside a 16-bit input. Zero rows return early.

    Refused: an odd width at 16 bits, whose rows only 2-byte copies divide while cp.async moves at least 4; addresses or
    row strides that are not multiples of the vector; an inner stride other than 1.

    Source: quack-kernels 0.6.5, quack/rmsnorm.py, rmsnorm_config.py, copy_utils.py.
    """

    name = "quack"
    library = "quack"
    on_record = CLAIMS
    modules = ("quack", "quack.rmsnorm")
    distribution = "quack-kernels"

    def _refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        if vector_bytes(width, dtype.itemsize) < 4:
            return "quack copies with cp.async, at least 4 bytes at a time: no odd width at 16 bits"
        return None

    def _check(self, op: str, *tensors: torch.Tensor) -> None:
        for name, tensor in zip(operator(op).inputs, tensors, strict=True):
            require_unit_stride(tensor, name)
            rows = tensor if tensor.ndim == 1 else as_rows(tensor, name)
            require_aligned(rows, name, vector_bytes(rows.shape[-1], rows.element_size()))

    def _native(self, op: str) -> Callable:
        rmsnorm = import_module("quack.rmsnorm").rmsnorm
        bias = operator(op).weight_bias
        if not operator(op).mutated:

            def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
                return rmsnorm(input, weight, eps=eps, weight_offset=bias)

            return norm

        def add_norm(
            input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return rmsnorm(input, weight, residual=residual, eps=eps, prenorm=True, weight_offset=bias)

        return add_norm

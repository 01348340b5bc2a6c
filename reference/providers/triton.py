"""The Triton kernels of this repository, as a peer that many users would write first."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

from reference.operators import operator
from reference.providers.claim import ADD, GEMMA_ADD, GEMMA_NORM, NORM, ROUNDING_ACTIVATION, ROUNDING_EVERY_OPERATION, Claim
from reference.providers.library import LibraryProvider

_KERNELS = "reference.providers.triton_kernels"
CLAIMS = (
    Claim("triton", ADD + GEMMA_ADD, "R0W0", "reference/providers/triton_kernels.py", "gpu"),
    Claim("triton", NORM + GEMMA_NORM, "W0", "reference/providers/triton_kernels.py", "gpu"),
    Claim("triton", ROUNDING_ACTIVATION + ROUNDING_EVERY_OPERATION, "S0", "reference/providers/triton_kernels.py", "gpu"),
)


class TritonKernels(LibraryProvider):
    """Functions of `reference/providers/triton_kernels.py`, named as the operators, in FlashInfer's signatures.

    R0W0, W0, S0; add_norm writes in place. CUDA and Triton only.
    """

    name = "triton"
    library = "triton"
    on_record = CLAIMS
    modules = ("triton", _KERNELS)
    distribution = "triton"
    in_place = True

    def _refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        """An operator that the module does not have."""
        return None if hasattr(import_module(_KERNELS), op) else f"{self.name} has no {op}"

    def _native(self, op: str) -> Callable:
        kernel = getattr(import_module(_KERNELS), op)
        if not operator(op).mutated:
            return kernel

        def add_norm(
            input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            kernel(input, residual, weight, eps)
            return input, residual

        return add_norm

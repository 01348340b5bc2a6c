"""What PyTorch code does without a fused kernel: an add, then F.rms_norm; an activation, then a multiply."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from reference.operators import operator
from reference.providers.library import LibraryProvider

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda gate: F.gelu(gate, approximate="tanh"),
}


class TorchEager(LibraryProvider):
    """`residual' = input + residual` in the storage dtype, then `F.rms_norm(residual', weight, eps)`: R1W0, W0.

    Gated: `act(gate) * up`, two operations with the activation stored between them: S1. A weight that is fp32 beside a
    16-bit input, and the Gemma weight `weight + 1` in fp32, take F.rms_norm on fp32 rows and one cast at the end: the
    same contract, where F.rms_norm on mixed dtypes warns and leaves its fused path. CPU and CUDA; nothing is refused.
    Source: torch 2.13, torch/nn/functional.py and aten/src/ATen/native/layer_norm.cpp; its numbers agree with R1W0, W0
    and S1 on the CPU, which a test checks.
    """

    name = "torch-rmsnorm"
    library = "torch"
    modules = ("torch",)
    distribution = "torch"
    needs_cuda = False

    def _native(self, op: str) -> Callable:
        which = operator(op)
        if which.activation is not None:
            activate = ACTIVATIONS[which.activation]

            def gated(input: torch.Tensor) -> torch.Tensor:
                gate, up = input.chunk(2, dim=-1)
                return activate(gate) * up

            return gated

        def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
            if which.weight_bias == 0.0 and weight.dtype == input.dtype:
                return F.rms_norm(input, weight.shape, weight, eps)
            weight32 = weight.float() + which.weight_bias
            return F.rms_norm(input.float(), weight.shape, weight32, eps).to(input.dtype)

        def add_norm(
            input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            total = input + residual
            return norm(total, weight, eps), total

        return norm if which.family == "norm" else add_norm

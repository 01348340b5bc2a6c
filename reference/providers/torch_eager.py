"""What PyTorch code does without a fused kernel: an add, then F.rms_norm; an activation, then a multiply."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from reference.operators import operator
from reference.operators.contract import contract_of
from reference.providers.claim import (
    ADD,
    GEMMA_ADD,
    GEMMA_NORM,
    NORM,
    ROUNDING_ACTIVATION,
    ROUNDING_EVERY_OPERATION,
    Claim,
    with_operators,
)
from reference.providers.library import LibraryProvider
from reference.providers.recorded import StoredValues, record

_TORCH = "torch 2.13"
CLAIMS = with_operators(
    Claim("torch", ADD + GEMMA_ADD, "R1W0", f"{_TORCH}: F.rms_norm after a separate add", "cpu"),
    Claim("torch", NORM + GEMMA_NORM, "W0", f"{_TORCH}: F.rms_norm", "cpu"),
    Claim("torch", ROUNDING_ACTIVATION, "S1", f"{_TORCH}: F.silu or F.gelu of the gate, then a multiply", "cpu"),
    Claim("torch", ROUNDING_EVERY_OPERATION, "S2", f"{_TORCH}: the formula, one torch operation after another", "cpu"),
)


class TorchEager(LibraryProvider):
    """`residual' = input + residual` in the storage dtype, then `F.rms_norm(residual', weight, eps)`: R1W0, W0.

    Gated: the formula's torch operations one by one, each stored: `act(gate) * up` is S1, an activation of several
    operations S2. A weight that is fp32 beside a
    16-bit input, and the Gemma weight `weight + 1` in fp32, take F.rms_norm on fp32 rows and one cast at the end: the
    same contract, where F.rms_norm on mixed dtypes warns and leaves its fused path. CPU and CUDA; nothing is refused.
    Source: torch 2.13, torch/nn/functional.py and aten/src/ATen/native/layer_norm.cpp; its numbers agree with R1W0, W0
    and S1 on the CPU, which a test checks.
    """

    name = "torch-rmsnorm"
    library = "torch"
    on_record = CLAIMS
    modules = ("torch",)
    distribution = "torch"
    needs_cuda = False

    def _native(self, op: str) -> Callable:
        which = operator(op)
        if which.activation:
            return record(which, StoredValues, contract_of(which, which.codes[-1]))

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

        return add_norm if which.mutated else norm

"""torch.compile on the operators written as PyTorch: what a user gets without writing a kernel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec

import torch

from reference.operators import operator
from reference.providers.library import LibraryProvider
from reference.providers.torch_eager import ACTIVATIONS


class TorchCompile(LibraryProvider):
    """fp32 arithmetic with one cast at the end, fused by Inductor: R0W0, W0, S0.

    The sources hold no rounding between the first load and the last cast, because Inductor keeps 16-bit intermediates
    in fp32 where it fuses and in memory where it does not, so that a compiled `F.silu(gate) * up` comes out as S0, and
    a compiled add and F.rms_norm as R1W0 on the CPU (torch 2.13): the contract of a compiled module with roundings
    inside depends on the fusion. CPU (needs a C++ compiler) and CUDA (needs Triton); nothing is refused.

    The first call of a shape compiles for seconds; from the second shape on, Inductor compiles for any shape. For
    timings of one shape each call `torch.compiler.reset()` between shapes.
    """

    name = "torch-compile"
    library = "torch-compile"
    modules = ("torch",)
    distribution = "torch"
    needs_cuda = False

    def unavailable(self, device: torch.device) -> str | None:
        """Also what Inductor lacks: a C++ compiler for the CPU, Triton for CUDA."""
        reason = super().unavailable(device)
        if reason is None and device.type == "cuda" and find_spec("triton") is None:
            return "torch.compile needs Triton for CUDA, and it is not installed"
        compilers = (os.environ.get("CXX", "g++"), "clang++")
        if reason is None and device.type == "cpu" and not any(map(shutil.which, compilers)):
            return "torch.compile needs a C++ compiler for the CPU, and none is found"
        return reason

    def _native(self, op: str) -> Callable:
        return torch.compile(_source(op))


def _source(op: str) -> Callable:
    which = operator(op)
    bias = which.weight_bias
    if which.activation is not None:
        activate = ACTIVATIONS[which.activation]

        def gated(input: torch.Tensor) -> torch.Tensor:
            gate, up = input.float().chunk(2, dim=-1)
            return (activate(gate) * up).to(input.dtype)

        return gated

    def scaled(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        rstd = torch.rsqrt(hidden.square().mean(dim=-1, keepdim=True) + eps)
        return hidden * rstd * (weight.float() + bias)

    def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return scaled(input.float(), weight, eps).to(input.dtype)

    def add_norm(
        input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = input.float() + residual.float()
        return scaled(total, weight, eps).to(input.dtype), total.to(input.dtype)

    return norm if which.family == "norm" else add_norm

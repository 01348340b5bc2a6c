"""torch.compile on the operators' formulas: what a user gets without writing a kernel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec

import torch

from reference.operators import operator
from reference.operators.contract import contract_of
from reference.providers.claim import ADD, GEMMA_ADD, GEMMA_NORM, NORM, ROUNDING_ACTIVATION, ROUNDING_EVERY_OPERATION, Claim
from reference.providers.library import LibraryProvider
from reference.providers.recorded import TorchFunctions, record

_TORCH = "torch 2.13"
CLAIMS = (
    Claim(
        "torch-compile",
        ADD + GEMMA_ADD,
        "R0W0",
        f"{_TORCH}: Inductor on reference/providers/torch_compile.py",
        "cpu",
        "of fp32 arithmetic with one cast at the end; Inductor may drop a module's inner roundings",
    ),
    Claim("torch-compile", NORM + GEMMA_NORM, "W0", f"{_TORCH}: Inductor", "cpu"),
    Claim("torch-compile", ROUNDING_ACTIVATION + ROUNDING_EVERY_OPERATION, "S0", f"{_TORCH}: Inductor", "cpu"),
)


class TorchCompile(LibraryProvider):
    """fp32 arithmetic with one cast at the end, fused by Inductor: R0W0, W0, S0.

    What is compiled holds no rounding between the first load and the last cast, because Inductor keeps 16-bit intermediates
    in fp32 where it fuses and in memory where it does not, so that a compiled `F.silu(gate) * up` comes out as S0, and
    a compiled add and F.rms_norm as R1W0 on the CPU (torch 2.13): the contract of a compiled module with roundings
    inside depends on the fusion. CPU (needs a C++ compiler) and CUDA (needs Triton); nothing is refused.

    The first call of a shape compiles for seconds; from the second shape on, Inductor compiles for any shape. For
    timings of one shape each call `torch.compiler.reset()` between shapes.
    """

    name = "torch-compile"
    library = "torch-compile"
    on_record = CLAIMS
    modules = ("torch",)
    distribution = "torch"
    needs_cuda = False

    def _lacks(self, device: torch.device) -> str | None:
        """Also what Inductor lacks: a C++ compiler for the CPU, Triton for CUDA."""
        reason = super()._lacks(device)
        if reason is None and device.type == "cuda" and find_spec("triton") is None:
            return "torch.compile needs Triton for CUDA, and it is not installed"
        compilers = (os.environ.get("CXX", "g++"), "clang++")
        if reason is None and device.type == "cpu" and not any(map(shutil.which, compilers)):
            return "torch.compile needs a C++ compiler for the CPU, and none is found"
        return reason

    def _native(self, op: str) -> Callable:
        which = operator(op)
        return torch.compile(record(which, TorchFunctions, contract_of(which)))

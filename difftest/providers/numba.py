"""This project's own kernels as a provider: the one bridge to `numba_kernels`, which is imported when a function is asked for."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from types import ModuleType

import torch

from difftest import interrupts
from reference.contracts import Contract, contract
from reference.operators import OPERATORS
from reference.providers import Unavailable
from reference.providers.protocol import Call, missing_device


@functools.cache
def toolkit_lacks() -> str | None:
    """The first library of the CUDA toolkit that compiling a kernel needs and that is not found, with the cure; None: none."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    for library in ("nvvm", "nvrtc", "nvJitLink"):
        try:
            load_nvidia_dynamic_lib(library)
        except DynamicLibNotFoundError:
            return f"lib{library} is not found, and kernels can't be compiled: pip install 'numba-kernels[cu13]' (or [cu12])"
    return None


class NumbaProvider:
    """The Numba kernels, on a GPU or, for CPU tensors, on the CPU emulator. Follows any contract of its operators."""

    name = "numba"
    module = "numba_kernels"
    in_place = True
    batch_invariant = True  # the sum's order is a function of the width alone

    def claims(self, op: str) -> Contract | None:
        """The operators' default contract."""
        return contract(op) if op in OPERATORS else None

    def check(self, case: Call) -> str | None:
        """Why the call can't run here: the package or numba-cuda does not import, it has no such operator, torch sees no CUDA
        device, or what compiles for one is missing."""
        device = torch.device(case.device)
        return self._not_importable(case.op) or missing_device(device) or (toolkit_lacks() if device.type == "cuda" else None)

    def function(self, op: str, contract: Contract | None = None) -> Callable:
        """The public operator with its contract bound."""
        chosen = contract or self.claims(op)
        if chosen is None or not chosen.bias_in_fp32:
            raise ValueError(f"{self.name} has no {op} under {chosen}")
        try:
            operation = getattr(self._module(), op)
        except Exception as error:
            raise Unavailable(f"numba_kernels has no usable {op}: {error}") from error
        return functools.partial(operation, contract=chosen.code)

    def native(self, op: str) -> Callable:
        """The public operator; one that works in place returns what it has overwritten."""
        function = self.function(op)
        if not OPERATORS[op].mutated:
            return function

        def in_place(*arguments):
            function(*arguments)
            return arguments[: len(OPERATORS[op].outputs)]

        return in_place

    def version(self) -> str:
        """The installed distribution's version, or that it is a source tree."""
        try:
            return importlib.metadata.version("numba-kernels")
        except importlib.metadata.PackageNotFoundError:
            return "source tree"

    def _not_importable(self, op: str) -> str | None:
        try:
            module = self._module()
        except Exception as error:  # whatever stops the import is the reason
            return f"numba_kernels does not import: {type(error).__name__}: {error}"
        if importlib.util.find_spec("numba_cuda") is None:
            return "numba-cuda is not installed: pip install numba-cuda==0.30.4"
        return None if hasattr(module, op) else f"numba_kernels has no {op}"

    def _module(self) -> ModuleType:
        with interrupts.held_back():
            return importlib.import_module(self.module)

"""This project's own kernels as a provider: the one bridge to `numba_kernels`, which is imported when a function is asked for."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from types import ModuleType

import torch

from difftest import interrupts
from reference.contracts import Contract, contract
from reference.operators import OPERATORS
from reference.providers import Unavailable
from reference.providers.protocol import Call, missing_device


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
        """Why the call can't run here: the package does not import, has no such operator, or torch sees no CUDA device."""
        try:
            module = self._module()
        except Exception as error:  # whatever stops the import is the reason
            return f"numba_kernels does not import: {type(error).__name__}: {error}"
        return missing_device(torch.device(case.device)) or (
            None if hasattr(module, case.op) else f"numba_kernels has no {case.op}"
        )

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

    def _module(self) -> ModuleType:
        with interrupts.held_back():
            return importlib.import_module(self.module)

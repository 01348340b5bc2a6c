"""What adapters of foreign libraries share: lazy import, the claim from the table, and FlashInfer's signature.

Imports torch; each library only when an operator of it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from importlib.util import find_spec

import torch

from reference.claims import claim
from reference.contracts import Contract, contract
from reference.formats import FORMATS
from reference.operators import operator
from reference.providers.protocol import Call, Unavailable
from reference.rounding import STORAGE_DTYPES


class LibraryProvider:
    """A provider of an installed package. A subclass names the package and fills `_native` and, if need be, the hooks.

    Hooks: `_native(op)` gives the library's own form, importing what it needs; `_check(op, *tensors)` raises Refused
    for tensors it can't take; `_refuses` adds reasons that depend on the width.
    """

    name: str
    library: str  # the row of reference.claims
    modules: tuple[str, ...]  # what must import
    distribution: str  # whose version is reported
    in_place = False
    needs_cuda = True
    dtypes: tuple[torch.dtype, ...] = STORAGE_DTYPES

    def claims(self, op: str) -> Contract | None:
        """The contract on record for the library, read from its source, or None."""
        return contract(op, self.library) if claim(self.library, op) else None

    def check(self, case: Call) -> str | None:
        """Why the call can't run here, or None; see the protocol."""
        device = torch.device(case.device)
        reason = self.unavailable(device)
        if reason is None and self.claims(case.op) is None:
            reason = f"has no {case.op}"
        return reason or self.refuses(case.op, FORMATS[case.dtype].torch, case.width, device)

    def unavailable(self, device: torch.device) -> str | None:
        """No CUDA device, a module that is not installed, or one that does not import; else None."""
        if self.needs_cuda and device.type != "cuda":
            return f"{self.name} runs on CUDA devices only"
        if device.type == "cuda" and not torch.cuda.is_available():
            return "torch sees no CUDA device"
        return self._not_importable()

    def refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        """An operator without a claim, a dtype the library lacks, or a width its kernels do not take; else None."""
        if self.claims(op) is None:
            return f"{self.name} has no {op}"
        if dtype not in self.dtypes:
            return f"{self.name} does not take {dtype}"
        return self._refuses(op, dtype, width, device)

    def function(self, op: str, contract: Contract | None = None) -> Callable:
        """The operator in FlashInfer's signature; see the protocol."""
        claimed = self.claims(op)
        if claimed is None:
            raise ValueError(f"{self.name} has no {op}")
        if contract is not None and contract.code != claimed.code:
            raise ValueError(f"{self.name} follows {claimed.code} for {op}, not {contract.code}")
        native = self.native(op)
        family = operator(op).family
        if family == "gated":

            def gated(input: torch.Tensor) -> torch.Tensor:
                self._check(op, input)
                return native(input)

            return gated
        if family == "norm":

            def norm(input: torch.Tensor, weight: torch.Tensor, eps: float = claimed.eps) -> torch.Tensor:
                self._check(op, input, weight)
                return native(input, weight, eps)

            return norm

        def add_norm(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = claimed.eps) -> None:
            self._check(op, input, residual, weight)
            output, new_residual = native(input, residual, weight, eps)
            if not self.in_place:
                input.copy_(output)
                residual.copy_(new_residual)

        return add_norm

    def native(self, op: str) -> Callable:
        """The library's own form; see the protocol."""
        if self.claims(op) is None:
            raise ValueError(f"{self.name} has no {op}")
        reason = self._not_importable()
        if reason:
            raise Unavailable(reason)
        return self._native(op)

    def version(self) -> str:
        """The installed version, or "not installed"."""
        try:
            return installed_version(self.distribution)
        except PackageNotFoundError:
            return "not installed"

    def _native(self, op: str) -> Callable:
        raise NotImplementedError

    def _check(self, op: str, *tensors: torch.Tensor) -> None:
        """Raises Refused for tensors that the library would fail on, or silently misread."""

    def _refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        return None

    def _not_importable(self) -> str | None:
        for module in self.modules:
            try:
                missing = find_spec(module) is None
            except ModuleNotFoundError:  # the parent package of a dotted name is missing
                missing = True
            if missing:
                return f"{module.partition('.')[0]} is not installed"
            try:
                import_module(module)
            except Exception as error:  # a foreign package may raise anything while it is imported
                return f"{module} does not import: {type(error).__name__}: {error}"
        return None

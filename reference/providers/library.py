"""What adapters of foreign libraries share: lazy import, the claims on record, and FlashInfer's signature."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from typing import Any

import torch

from reference.formats import FORMATS
from reference.operators import Operator, operator
from reference.operators.contract import Contract
from reference.providers.claim import Claim, find
from reference.providers.protocol import Call, Unavailable, missing_device
from reference.rounding import STORAGE_DTYPES


def in_signature(
    op: str | Operator, native: Callable, contract: Contract, *, in_place: bool, check: Callable[..., None] | None = None
) -> Callable:
    """`native` in FlashInfer's signature: numbers default to the contract's, and what an operator writes is written.

    `check(*tensors)` comes first. `in_place`: `native` has written its tensors itself; otherwise its outputs are copied.
    """
    op = operator(op)
    signature = op.signature(contract)

    def function(*arguments: Any, **named: Any) -> torch.Tensor | None:
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        if check:
            check(*bound.args[: len(op.tensors)])
        returned = native(*bound.args)
        if not op.mutated:
            return returned
        if not in_place:
            for name, output in zip(op.mutated, returned, strict=True):
                bound.arguments[name].copy_(output)
        return None

    function.__name__ = op.name
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


class LibraryProvider:
    """A provider of an installed package. A subclass names the package and fills `_native` and, if need be, the hooks.

    Hooks: `_native(op)` gives the library's own form, importing what it needs; `_check(op, *tensors)` raises Refused
    for tensors it can't take; `_lacks(device)` and `_refuses(op, dtype, width, device)` add reasons to `check`.
    """

    name: str
    library: str  # whose claims are the provider's
    on_record: tuple[Claim, ...]  # where they stand
    modules: tuple[str, ...]  # what must import
    distribution: str  # whose version is reported
    in_place = False
    needs_cuda = True
    dtypes: tuple[torch.dtype, ...] = STORAGE_DTYPES

    def claims(self, op: str) -> Contract | None:
        """The contract on record for the library, read from its source, or None."""
        found = find(self.on_record, self.library, op)
        return found.contract(op) if found else None

    def check(self, case: Call) -> str | None:
        """Why the call can't run here, or None; see the protocol."""
        device, dtype = torch.device(case.device), FORMATS[case.dtype].torch
        reason = self._lacks(device)
        if reason is None and self.claims(case.op) is None:
            reason = f"has no {case.op}"
        if reason is None and dtype not in self.dtypes:
            reason = f"{self.name} does not take {dtype}"
        return reason or self._refuses(case.op, dtype, case.width, device)

    def function(self, op: str, contract: Contract | None = None) -> Callable:
        """The operator in FlashInfer's signature; see the protocol."""
        claimed = self.claims(op)
        if claimed is None:
            raise ValueError(f"{self.name} has no {op}")
        if contract is not None and contract.code != claimed.code:
            raise ValueError(f"{self.name} follows {claimed.code} for {op}, not {contract.code}")
        return in_signature(op, self.native(op), claimed, in_place=self.in_place, check=partial(self._check, op))

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

    def _lacks(self, device: torch.device) -> str | None:
        """No CUDA device, a module that is not installed, or one that does not import; else None."""
        if self.needs_cuda and device.type != "cuda":
            return f"{self.name} runs on CUDA devices only"
        return missing_device(device) or self._not_importable()

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
                return f"{module.partition('.')[0]} is not installed: pip install {self.distribution}"
            try:
                import_module(module)
            except Exception as error:  # a foreign package may raise anything while it is imported
                return f"{module} does not import: {type(error).__name__}: {error}"
        return None

"""What a provider is: a named implementation of some operators, with the contract that it claims to follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch

from reference.operators.contract import Contract


class Unavailable(RuntimeError):
    """A provider cannot be used here at all; the message is the reason."""


class Refused(ValueError):
    """A provider does not take these arguments; the message is the reason. Raised before anything is written."""


class Call(Protocol):
    """What decides whether a provider can run a call: names and a width, no tensors."""

    @property
    def op(self) -> str:
        """The operator's name."""

    @property
    def dtype(self) -> str:
        """The storage format's name."""

    @property
    def width(self) -> int:
        """The width of an output row."""

    @property
    def device(self) -> str:
        """torch's name of the device."""


def missing_device(device: torch.device) -> str | None:
    """Why torch can't run on the device, or None."""
    return "torch sees no CUDA device" if device.type == "cuda" and not torch.cuda.is_available() else None


@runtime_checkable
class Provider(Protocol):
    """A named implementation of operators.

    Functions have FlashInfer's signatures and take torch tensors: the operator's tensors in their order, then its
    parameters. They write into the tensors that the operator writes and return None, or else return the output. A
    function raises `Refused` for a layout or a weight dtype that its library cannot take; `check` says beforehand what
    depends on the operator, the dtype, the width and the device.

    A provider may also have `batch_invariant = True`: it promises that a row's bits don't depend on the rows beside it, and
    the tester takes a row that does for a difference.
    """

    name: str
    in_place: bool  # False: where the operator writes its tensors, `native` returns new ones, and `function` copies them back

    def claims(self, op: str) -> Contract | None:
        """The contract that the provider's source follows for `op`, or None when it does not have the operator."""

    def check(self, case: Call) -> str | None:
        """Why this call can't run (library or device missing, operator, dtype or width not taken), or None."""

    def function(self, op: str, contract: Contract | None = None) -> Callable:
        """The operator, in FlashInfer's signature.

        `contract=None` is the one it claims. ValueError for another contract, unless the provider can follow any;
        ValueError for an operator it does not have; Unavailable when the library is missing.
        """

    def native(self, op: str) -> Callable:
        """The library's own form for timing, without copies back and without the layout checks of `function`.

        An operator that writes its tensors returns its outputs, in their order: new tensors, or, where `in_place`, the
        tensors written. The others as `function`. Errors as `function`.
        """

    def version(self) -> str:
        """The version of the library, or "not installed"."""

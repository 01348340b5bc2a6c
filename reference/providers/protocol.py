"""What a provider is: a named implementation of some operators, with the contract that it claims to follow.

Imports torch and this package's contracts; never a provider's own library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch

from reference.contracts import Contract


class Unavailable(RuntimeError):
    """A provider cannot be used here at all; the message is the reason."""


class Refused(ValueError):
    """A provider does not take these arguments; the message is the reason. Raised before anything is written."""


@runtime_checkable
class Provider(Protocol):
    """A named implementation of operators.

    Functions have FlashInfer's signatures and take torch tensors: add_norm `f(input, residual, weight, eps) -> None`,
    in place; norm `f(input, weight, eps) -> output`; gated `f(input) -> output`. A function raises `Refused` for a
    layout or a weight dtype that its library cannot take; `refuses` says beforehand what depends on the width.

    A provider may also have `batch_invariant = True`: it promises that a row's bits don't depend on the rows beside it, and
    the tester takes a row that does for a difference.
    """

    name: str
    in_place: bool  # False: the library's add_norm returns new tensors, and `function` copies them back

    def claims(self, op: str) -> Contract | None:
        """The contract that the provider's source follows for `op`, or None when it does not have the operator."""

    def unavailable(self, device: torch.device) -> str | None:
        """The reason why nothing can run on `device`, or None."""

    def refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        """The reason why this operator, dtype and output width can't run on `device`, or None."""

    def function(self, op: str, contract: Contract | None = None) -> Callable:
        """The operator, in FlashInfer's signature.

        `contract=None` is the one it claims. ValueError for another contract, unless the provider can follow any;
        ValueError for an operator it does not have; Unavailable when the library is missing.
        """

    def native(self, op: str) -> Callable:
        """The library's own form for timing, without copies back and without the layout checks of `function`.

        add_norm `f(input, residual, weight, eps) -> (output, residual)`: new tensors, or, where `in_place`, the inputs
        themselves. norm and gated as `function`. Errors as `function`.
        """

    def version(self) -> str:
        """The version of the library, or "not installed"."""

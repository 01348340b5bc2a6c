"""The plain arithmetic of `reference.arithmetic` as a provider: any operator, any contract, any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from reference.arithmetic import evaluate
from reference.operators import operator
from reference.operators.contract import Contract, check_contract, contract_of
from reference.providers.library import in_signature
from reference.providers.protocol import Call, missing_device


class TorchPlain:
    """Plain PyTorch under the contract asked for: R0W0, W0, S0 unless a code is part of the name (`torch:R1W1`).

    Each corner exactly as `reference.arithmetic.evaluate` states it, so a claim is exact by construction. Nothing is
    refused but an operator that lacks the code in the name.
    """

    in_place = False

    def __init__(self, code: str = "") -> None:
        self.name = f"torch:{code}" if code else "torch"
        self._code = code

    def claims(self, op: str) -> Contract | None:
        """The default contract of `op`, or the one in the name where `op` has it."""
        if self._code and self._code not in operator(op).codes:
            return None
        return contract_of(op, self._code)

    def check(self, case: Call) -> str | None:
        """Why the call can't run here, or None; see the protocol."""
        return missing_device(torch.device(case.device)) or (None if self.claims(case.op) else f"has no {case.op}")

    def function(self, op: str, contract: Contract | None = None) -> Callable:
        """The operator under `contract`, whatever its code. The numbers of the call win over the contract's."""
        chosen = self._chosen(op, contract)
        return in_signature(op, self._under(op, chosen), chosen, in_place=False)

    def native(self, op: str) -> Callable:
        """As `function`, with new tensors in place of those that are written."""
        return self._under(op, self._chosen(op, None))

    def version(self) -> str:
        """torch's version."""
        return torch.__version__

    def _chosen(self, op: str, asked: Contract | None) -> Contract:
        chosen = asked or self.claims(op)
        if chosen is None:
            raise ValueError(f"{op} has no contract {self._code}")
        check_contract(op, chosen)
        return chosen

    def _under(self, op: str, contract: Contract) -> Callable:
        which = operator(op)
        names = tuple(p.name for p in which.parameters)

        def native(*arguments: Any) -> torch.Tensor | tuple[torch.Tensor, ...]:
            tensors = dict(zip(which.inputs, arguments, strict=False))
            numbers = dict(zip(names, arguments[len(tensors) :], strict=False))
            outputs = evaluate(which, tensors, contract.with_values(numbers))
            return tuple(outputs.values()) if which.mutated else outputs["output"]

        return native

"""The plain arithmetic of `reference.arithmetic` as a provider: any operator, any contract, any device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from reference.arithmetic import evaluate
from reference.contracts import Contract, check_contract, contract
from reference.operators import operator
from reference.providers.protocol import Call


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
        return contract(op, self._code)

    def check(self, case: Call) -> str | None:
        """Why the call can't run here, or None; see the protocol."""
        return self.unavailable(torch.device(case.device)) or (None if self.claims(case.op) else f"has no {case.op}")

    def unavailable(self, device: torch.device) -> str | None:
        """A reason only for a CUDA device that torch does not see."""
        if device.type == "cuda" and not torch.cuda.is_available():
            return "torch sees no CUDA device"
        return None

    def refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        """A reason only for an operator that lacks the code in the name."""
        return None if self.claims(op) else f"{op} has no contract {self._code}"

    def function(self, op: str, contract: Contract | None = None) -> Callable:
        """The operator under `contract`, whatever its code. The eps of the call wins over the contract's."""
        native = self._under(op, contract)
        if operator(op).family != "add_norm":
            return native

        def add_norm(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float | None = None) -> None:
            output, new_residual = native(input, residual, weight, eps)
            input.copy_(output)
            residual.copy_(new_residual)

        return add_norm

    def native(self, op: str) -> Callable:
        """As `function`, with add_norm out of place: (output, residual)."""
        return self._under(op, None)

    def version(self) -> str:
        """torch's version."""
        return torch.__version__

    def _under(self, op: str, asked: Contract | None) -> Callable:
        chosen = asked or self.claims(op)
        if chosen is None:
            raise ValueError(f"{op} has no contract {self._code}")
        check_contract(op, chosen)

        def at(eps: float | None) -> Contract:
            return chosen if eps is None else replace(chosen, eps=eps)

        def add_norm(
            input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float | None = None
        ) -> tuple[torch.Tensor, torch.Tensor]:
            outputs = evaluate(op, {"input": input, "residual": residual, "weight": weight}, at(eps))
            return outputs["output"], outputs["residual"]

        def norm(input: torch.Tensor, weight: torch.Tensor, eps: float | None = None) -> torch.Tensor:
            return evaluate(op, {"input": input, "weight": weight}, at(eps))["output"]

        def gated(input: torch.Tensor) -> torch.Tensor:
            return evaluate(op, {"input": input}, chosen)["output"]

        forms: dict[str, Callable] = {"add_norm": add_norm, "norm": norm, "gated": gated}
        return forms[operator(op).family]

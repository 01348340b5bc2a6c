"""The plain arithmetic of `reference.arithmetic` as a provider: any operator, any contract, any device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from reference.arithmetic import evaluate
from reference.contracts import Contract, check_contract, contract
from reference.operators import operator


class TorchPlain:
    """Plain PyTorch under the contract asked for: R0W0, W0, S0 unless a code is part of the name (`torch:R1W1`).

    `output = T(h * rstd * w)` and its other corners exactly as `reference.arithmetic.evaluate` states them. Claims are
    exact by construction. Nothing is refused.
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

    def unavailable(self, device: torch.device) -> str | None:
        """A reason only for a CUDA device that torch does not see."""
        if device.type == "cuda" and not torch.cuda.is_available():
            return "torch sees no CUDA device"
        return None

    def refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        """A reason only for an operator that has not the code in the name."""
        return None if self.claims(op) else f"{op} has no contract {self._code}"

    def function(self, op: str, contract: Contract | None = None) -> Callable:
        """The operator under `contract`, whatever its code; its eps gives way to the call's."""
        return (
            _in_place(self.native_under(op, contract))
            if operator(op).family == "add_norm"
            else self.native_under(op, contract)
        )

    def native(self, op: str) -> Callable:
        """As `function`, with add_norm out of place: (output, residual)."""
        return self.native_under(op, None)

    def native_under(self, op: str, contract: Contract | None) -> Callable:
        """The out-of-place operator under `contract`."""
        chosen = contract or self.claims(op)
        if chosen is None:
            raise ValueError(f"{op} has no contract {self._code}")
        check_contract(op, chosen)
        family = operator(op).family

        def at(eps: float) -> Contract:
            return Contract(chosen.code, eps, chosen.weight_bias, chosen.bias_in_fp32)

        def add_norm(input, residual, weight, eps=chosen.eps):
            outputs = evaluate(op, {"input": input, "residual": residual, "weight": weight}, at(eps))
            return outputs["output"], outputs["residual"]

        def norm(input, weight, eps=chosen.eps):
            return evaluate(op, {"input": input, "weight": weight}, at(eps))["output"]

        def gated(input):
            return evaluate(op, {"input": input}, chosen)["output"]

        return {"add_norm": add_norm, "norm": norm, "gated": gated}[family]

    def version(self) -> str:
        """torch's version."""
        return torch.__version__


def _in_place(native: Callable) -> Callable:
    def add_norm(input, residual, weight, eps=1e-6):
        output, new_residual = native(input, residual, weight, eps)
        input.copy_(output)
        residual.copy_(new_residual)

    return add_norm

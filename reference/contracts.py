"""Contracts by name: a code, or a library whose claim is on record."""

from __future__ import annotations

from reference.operators import Operator, operator
from reference.operators.contract import Contract, check_contract, contract_of, corners
from reference.operators.declaration import DEFAULT_EPS
from reference.providers.claims import claim, libraries

__all__ = ["DEFAULT_EPS", "Contract", "check_contract", "contract", "contract_of", "corners"]


def contract(op: str | Operator, spelling: str = "", eps: float = DEFAULT_EPS, **parameters: float) -> Contract:
    """The contract of `op` that `spelling` names: a code, in either case, or a library whose claim is on record.

    "" is the operator's first code (R0W0, W0, S0: FlashInfer's). The bias is the operator's own; so are the parameters
    that are not given. Raises ValueError, with the list of what is allowed, for anything else.
    """
    op = operator(op)
    word = spelling.strip()
    if not word or word.upper() in op.codes:
        return contract_of(op, word.upper(), eps, **parameters)
    row = claim(word.lower(), op)
    if row is None:
        allowed = ", ".join(op.codes + libraries(op))
        raise ValueError(f"unknown contract {spelling!r} for {op.name}; known: {allowed}")
    return row.contract(op, eps, **parameters)

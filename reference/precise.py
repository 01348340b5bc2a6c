"""Kept at the old name until its readers import `reference.exact.terms`."""

from __future__ import annotations

from reference.exact.terms import GatedTerms, NormTerms, terms
from reference.operators import Operator
from reference.operators.contract import Contract
from reference.operators.declaration import Tensors

__all__ = ["GatedTerms", "NormTerms", "gated_terms", "norm_terms"]


def norm_terms(op: Operator, inputs: Tensors, contract: Contract, *, compensated: bool = True) -> NormTerms:
    """`terms` of a norm."""
    found = terms(op, inputs, contract, compensated=compensated)
    assert isinstance(found, NormTerms)
    return found


def gated_terms(op: Operator, inputs: Tensors, contract: Contract) -> GatedTerms:
    """`terms` of a gated operator."""
    found = terms(op, inputs, contract)
    assert isinstance(found, GatedTerms)
    return found

"""Kept at the old name until its readers import `reference.exact.attainable`."""

from __future__ import annotations

import torch

from reference.exact import attainable as module
from reference.exact.attainable import (
    Attainable,
    attainable,
    gated_ends,
    gated_judged,
    leaves_fp32,
    norm_ends,
    norm_judged,
    norm_rstd_error,
    product_roundings,
)
from reference.exact.terms import GatedTerms

__all__ = [
    "Attainable",
    "activation_interval",
    "attainable",
    "gated_ends",
    "gated_judged",
    "leaves_fp32",
    "norm_ends",
    "norm_judged",
    "norm_rstd_error",
    "product_roundings",
]


def activation_interval(name: str, terms: GatedTerms, *, cancelling: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """As `reference.exact.attainable.activation_interval`, which needs no name."""
    return module.activation_interval(terms, cancelling=cancelling)

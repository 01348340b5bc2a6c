"""RMSNorm, alone and after the addition of a residual: declarations and formulas."""

from __future__ import annotations

from typing import Any

from reference.operators.declaration import EPS, NORM, RSTD, SUM, Operator, Role, SplitForm, Tensor


def add_rmsnorm(A: Any, input: Any, residual: Any, weight: Any, c: Any) -> tuple[Any, Any]:
    """residual' = input + residual; output = rmsnorm(residual') * (weight + bias), with R and W as the contract says."""
    total = A.add(input, residual)
    stored = A.store(total)
    hidden = A.load(stored) if c.rounds_sum else total
    return (*rmsnorm(A, hidden, weight, c), stored)


def rmsnorm(A: Any, hidden: Any, weight: Any, c: Any) -> tuple[Any]:
    """hidden / sqrt(mean(hidden^2) + eps) * (weight + bias), with W as the contract says."""
    normalised = A.times_rsqrt(hidden, A.add(A.mean_square(hidden), c.eps))
    if c.rounds_norm:
        normalised = A.load(A.store(normalised))
    return (A.store(A.mul(normalised, A.biased(weight, c))),)


_ADDING = (Tensor("input", Role.WRITTEN_ROWS), Tensor("residual", Role.WRITTEN_ROWS), Tensor("weight", Role.VECTOR))
_PLAIN = (Tensor("input", Role.ROWS), Tensor("weight", Role.VECTOR))

_ADD_SPLIT = (
    SplitForm(
        "split, fp32 sum kept",
        "R0W0",
        ((("input", "residual"), ("residual", "sum fp32")), (("sum fp32", "weight"), ("output",))),
    ),
    SplitForm(
        "split, stored sum re-read",
        "R1W0",
        ((("input", "residual"), ("residual",)), (("residual", "weight"), ("output",))),
    ),
)
_SPLIT = (
    SplitForm(
        "split, fp32 row kept",
        "W0",
        ((("input",), ("normalised fp32",)), (("normalised fp32", "weight"), ("output",))),
    ),
    SplitForm(
        "split, row kept as stored",
        "W1",
        ((("input",), ("normalised",)), (("normalised", "weight"), ("output",))),
    ),
)


def _add_norm(name: str, weight_bias: float) -> Operator:
    """`f(input, residual, weight, eps) -> None`; input, residual (..., width) T; weight (width,) T or fp32."""
    return Operator(
        name,
        _ADDING,
        ("output", "residual"),
        add_rmsnorm,
        (SUM, NORM),
        RSTD,
        parameters=(EPS,),
        weight_bias=weight_bias,
        split_forms=_ADD_SPLIT,
    )


def _norm(name: str, weight_bias: float) -> Operator:
    """`f(input, weight, eps) -> output`; input (..., width) T; weight (width,) T or fp32."""
    return Operator(
        name, _PLAIN, ("output",), rmsnorm, (NORM,), RSTD, parameters=(EPS,), weight_bias=weight_bias, split_forms=_SPLIT
    )


# Source of the semantics: FlashInfer 0.7.2, `flashinfer/norm/__init__.py`.
NORMS = (
    _add_norm("fused_add_rmsnorm", 0.0),
    _add_norm("gemma_fused_add_rmsnorm", 1.0),
    _norm("rmsnorm", 0.0),
    _norm("gemma_rmsnorm", 1.0),
)

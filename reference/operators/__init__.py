"""The operators by name. Each is one declaration, in the file of its kind, from which the rest follows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reference.operators.declaration import Operator, Parameter, Role, Rounding, Tensor
from reference.operators.gated import GATED
from reference.operators.norms import NORMS

__all__ = ["OPERATORS", "Operator", "Parameter", "Role", "Rounding", "Tensor", "operator"]

OPERATORS: Mapping[str, Operator] = MappingProxyType({op.name: op for op in (*NORMS, *GATED)})


def operator(op: str | Operator) -> Operator:
    """The operator of that name, or the operator itself. An unknown name is a ValueError that lists the known ones."""
    if isinstance(op, Operator):
        return op
    try:
        return OPERATORS[op]
    except KeyError:
        raise ValueError(f"unknown operator {op!r}; known: {', '.join(OPERATORS)}") from None

"""One record of a gated kernel's operation and config, for what has not parted them yet: see kernels/gated.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .kernels import gated
from .kernels.config import GatedConfig, GatedOperation


@dataclass(frozen=True, slots=True)
class GatedSpec:
    """All that a gated kernel is compiled for. Sizes in elements, ``access`` in bytes."""

    activation: str
    storage: str
    rounds_activation: bool
    leaf: int
    access: int
    lanes: int
    rows: int
    vectors: int
    exact: bool
    pdl: bool = False

    @property
    def threads(self) -> int:
        return self.lanes * self.rows


def make_gated_kernel(spec: GatedSpec) -> Callable[..., Any]:
    """The kernel for ``spec``."""
    return gated.make_gated_kernel(
        GatedOperation(spec.activation, spec.storage, "S1" if spec.rounds_activation else "S0"),
        GatedConfig(spec.leaf, spec.access, spec.lanes, spec.rows, spec.vectors, spec.exact, spec.pdl),
    )

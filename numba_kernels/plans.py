"""A *plan*: one checked call with everything fixed but addresses and stream. It names the kernel, its grid and its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import tuning
from .arrays import ITEMSIZE
from .compile import Spec


@dataclass(frozen=True, slots=True)
class NormPlan:
    """Norm kernels for rows of one shape: strides and sizes in elements, ``eps_bits`` the bits of the fp32 eps."""

    rows: int
    width: int
    x_stride: int
    residual_stride: int
    out_stride: int
    storage: str
    weight: str
    adds_residual: bool
    rounds_sum: bool
    rounds_norm: bool
    weight_bias: float
    eps_bits: int

    def spec(self, target: tuning.Target, addresses: tuple[int, ...], pdl: bool) -> Spec:
        size, weight_size = ITEMSIZE[self.storage], ITEMSIZE[self.weight]
        x, residual, weight, out = addresses
        leaf = tuning.row_tree(self.width, size).leaf
        apart = self.rows > 1 and target != tuning.REPLAY
        strides = [s * size for s in (self.x_stride, self.residual_stride, self.out_stride)] if apart else []
        return tuning.norm_spec(
            self.width,
            self.rows,
            target,
            adds_residual=self.adds_residual,
            storage=self.storage,
            weight=self.weight,
            access=tuning.access_bytes(leaf, size, x, residual, out, *strides),
            weight_access=tuning.access_bytes(leaf, weight_size, weight),
            rounds_sum=self.rounds_sum,
            rounds_norm=self.rounds_norm,
            weight_bias=None if target == tuning.REPLAY else self.weight_bias,
            pdl=pdl,
        )

    def shape(self, spec: Any) -> tuple[tuple[int, int, int], int]:
        """The grid and the dynamic shared memory in bytes."""
        return tuning.norm_grid(spec, self.rows), tuning.dynamic_shared_bytes(spec, self.width)

    def arguments(self, buffers: tuple[Any, ...], counter: int = 0) -> tuple[Any, ...]:
        """``counter`` is the number of the counter from which rows are drawn, where the kernel does that."""
        strides = (self.x_stride, self.residual_stride, self.out_stride)
        floats = (_bits(1.0 / self.width), self.eps_bits, _bits(self.weight_bias))
        return (*buffers, *strides, self.rows, self.width, *floats, counter)


@dataclass(frozen=True, slots=True)
class GatedPlan:
    """Gated kernels for rows of one shape; ``width`` is the output's."""

    rows: int
    width: int
    x_stride: int
    out_stride: int
    storage: str
    activation: str
    rounds_activation: bool

    def spec(self, target: tuning.Target, addresses: tuple[int, ...], pdl: bool) -> Spec:
        size = ITEMSIZE[self.storage]
        leaf = tuning.row_tree(self.width, size).leaf
        strides = [s * size for s in (self.x_stride, self.out_stride)] if self.rows > 1 and target != tuning.REPLAY else []
        return tuning.gated_spec(
            self.width,
            self.rows,
            target,
            activation=self.activation,
            storage=self.storage,
            access=tuning.access_bytes(leaf, size, *addresses, self.width * size, *strides),
            rounds_activation=self.rounds_activation,
            pdl=pdl,
        )

    def shape(self, spec: Any) -> tuple[tuple[int, int, int], int]:
        return tuning.gated_grid(spec, self.rows, self.width), 0

    def arguments(self, buffers: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*buffers, self.x_stride, self.out_stride, self.rows, self.width)


Plan = NormPlan | GatedPlan


def _bits(value: float) -> int:
    """The bits of ``value`` rounded to fp32: no fp64 reaches a kernel."""
    return int(np.float32(value).view(np.uint32))

"""A *plan*: one checked call with everything fixed but addresses and stream. It names the kernel, its grid and its arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import tuning
from .formats import FORMATS
from .kernels.config import GatedConfig, GatedOperation, Kernel, NormConfig, NormOperation, TextbookConfig
from .kernels.tree import row_tree


@dataclass(frozen=True, slots=True)
class NormPlan:
    """Norm kernels for rows of one shape: strides and sizes in elements, ``eps_bits`` the bits of the fp32 eps."""

    operation: NormOperation
    rows: int
    width: int
    x_stride: int
    residual_stride: int
    out_stride: int
    eps_bits: int
    config: NormConfig | TextbookConfig | None = None  # None, or one of a cluster that the target hasn't: what tuning says

    def kernel(self, target: tuning.Target, addresses: tuple[int, ...], pdl: bool) -> Kernel:
        """The kernel for buffers at these addresses, in the order of its parameters."""
        operation = self.operation
        if target == tuning.EMULATOR:
            operation = replace(operation, weight_bias=None)
        if self.config is not None and self.config.cluster <= target.clusters:
            return Kernel(operation, self.config)
        size, weight_size = FORMATS[operation.storage].itemsize, FORMATS[operation.weight].itemsize
        x, residual, weight, out = addresses
        vector = row_tree(self.width, size).vector
        apart = self.rows > 1 and target != tuning.EMULATOR
        strides = [s * size for s in (self.x_stride, self.residual_stride, self.out_stride)] if apart else []
        access = tuning.access_bytes(vector, size, x, residual, out, *strides)
        weight_access = tuning.access_bytes(vector, weight_size, weight)
        config = tuning.norm_config(operation, self.width, self.rows, target, access=access, weight_access=weight_access, pdl=pdl)
        return Kernel(operation, config)

    def shape(self, kernel: Kernel) -> tuple[tuple[int, int, int], int]:
        """The grid and the dynamic shared memory in bytes."""
        return kernel.shape(self.rows, self.width)

    def arguments(self, buffers: tuple[Any, ...], counter: int = 0) -> tuple[Any, ...]:
        """``counter`` is the number of the counter from which a persistent kernel takes its rows."""
        strides = (self.x_stride, self.residual_stride, self.out_stride)
        bias = self.operation.weight_bias or -0.0  # a weight of either zero stays what it is: -0 + 0 would be 0
        floats = (_bits(1.0 / self.width), self.eps_bits, _bits(bias))
        return (*buffers, *strides, self.rows, self.width, *floats, counter)


@dataclass(frozen=True, slots=True)
class GatedPlan:
    """Gated kernels for rows of one shape; ``width`` is the output's, ``parameters`` are the bits of the activation's."""

    operation: GatedOperation
    rows: int
    width: int
    x_stride: int
    out_stride: int
    parameters: tuple[int, ...] = ()
    config: GatedConfig | TextbookConfig | None = None  # None: what tuning says

    def kernel(self, target: tuning.Target, addresses: tuple[int, ...], pdl: bool) -> Kernel:
        """As NormPlan.kernel."""
        if self.config is not None:
            return Kernel(self.operation, self.config)
        size = FORMATS[self.operation.storage].itemsize
        vector = row_tree(self.width, size).vector
        strides = [s * size for s in (self.x_stride, self.out_stride)] if self.rows > 1 and target != tuning.EMULATOR else []
        access = tuning.access_bytes(vector, size, *addresses, self.width * size, *strides)
        return Kernel(self.operation, tuning.gated_config(self.operation, self.width, self.rows, target, access=access, pdl=pdl))

    def shape(self, kernel: Kernel) -> tuple[tuple[int, int, int], int]:
        """As NormPlan.shape."""
        return kernel.shape(self.rows, self.width)

    def arguments(self, buffers: tuple[Any, ...]) -> tuple[Any, ...]:
        """The kernel's arguments."""
        return (*buffers, self.x_stride, self.out_stride, self.rows, self.width, *self.parameters)


Plan = NormPlan | GatedPlan


def _bits(value: float) -> int:
    """The bits of ``value`` rounded to fp32: no fp64 reaches a kernel."""
    return int(np.float32(value).view(np.uint32))

"""One checked call of an operator, ready to run: on the GPU, on the CPU replay, or on the GPU with host arrays staged through it.

A *plan* fixes everything but addresses and stream: shapes, strides, formats, eps, contract. It picks a kernel for the alignment
of the addresses that it is given and keeps it, so a second call with the same key only compares numbers and launches.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from . import tuning
from .arrays import CPU, ITEMSIZE, Rows
from .compile import Spec, kernel_function


def replays(device: int) -> bool:
    """Whether arrays of ``device`` run on the CPU replay: host arrays do where there is no GPU, or where
    ``NUMBA_KERNELS_DEVICE=cpu`` asks for it."""
    return device == CPU and (os.environ.get("NUMBA_KERNELS_DEVICE") == "cpu" or _device_count() == 0)


def _device_count() -> int:
    from .launch import device_count

    return device_count()


@dataclass(slots=True)
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
    variants: dict[int, Any] = field(default_factory=dict)

    def spec(self, target: tuning.Target, addresses: tuple[int, ...], pdl: bool) -> Spec:
        size, weight_size = ITEMSIZE[self.storage], ITEMSIZE[self.weight]
        x, residual, weight, out = addresses
        leaf = tuning.row_tree(self.width, size).leaf
        strides = [s * size for s in (self.x_stride, self.residual_stride, self.out_stride)] if self.rows > 1 else []
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
            weight_bias=self.weight_bias,
            pdl=pdl,
        )

    def shape(self, spec: Any) -> tuple[tuple[int, int, int], int]:
        """The grid and the dynamic shared memory in bytes."""
        return tuning.norm_grid(spec, self.rows), tuning.dynamic_shared_bytes(spec, self.width)

    def arguments(self, buffers: tuple[Any, ...]) -> tuple[Any, ...]:
        strides = (self.x_stride, self.residual_stride, self.out_stride)
        return (*buffers, *strides, self.rows, self.width, self.eps_bits)


@dataclass(slots=True)
class GatedPlan:
    """Gated kernels for rows of one shape; ``width`` is the output's."""

    rows: int
    width: int
    x_stride: int
    out_stride: int
    storage: str
    activation: str
    rounds_activation: bool
    variants: dict[int, Any] = field(default_factory=dict)

    def spec(self, target: tuning.Target, addresses: tuple[int, ...], pdl: bool) -> Spec:
        size = ITEMSIZE[self.storage]
        leaf = tuning.row_tree(self.width, size).leaf
        strides = [s * size for s in (self.x_stride, self.out_stride)] if self.rows > 1 else []
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


def launch(plan: Plan, device: int, stream: int, addresses: tuple[int, ...], pdl: bool) -> None:
    """Run ``plan`` on a GPU. The kernel is chosen once for each alignment of the addresses."""
    from . import launch as gpu

    low = 0
    for address in addresses:
        low = low << 4 | address & 15
    variant = plan.variants.get(low)
    if variant is None:
        target = gpu.target(device)
        spec = plan.spec(target, addresses, pdl and target.pdl)
        grid, shared = plan.shape(spec)
        kernel = gpu.load(device, spec, shared)
        how = gpu.config(grid, spec.threads, shared, pdl=spec.pdl, cluster=getattr(spec, "cluster", 1))
        variant = plan.variants[low] = (how, kernel)
    gpu.run(device, stream, *variant, plan.arguments(addresses))


@cache
def _replay_kernel(spec: Spec) -> Any:
    from .replay import ReplayKernel

    return ReplayKernel(kernel_function(spec))


def replay(plan: Plan, rows: tuple[Rows, ...]) -> None:
    """Run ``plan`` on the CPU replay, on the caller's own memory."""
    spec = plan.spec(tuning.REPLAY, tuple(r.array.address for r in rows), False)
    grid, shared = plan.shape(spec)
    buffers = tuple(_words(r) for r in rows)
    kernel = _replay_kernel(spec)
    kernel.launch(grid=grid, block=spec.threads, args=plan.arguments(buffers), dynamic_shared_bytes=shared)


def _words(rows: Rows) -> np.ndarray:
    """The memory from a view's first element to its last, as unsigned words of its item size."""
    kind = ctypes.c_uint16 if rows.array.itemsize == 2 else ctypes.c_uint32
    return np.ctypeslib.as_array((kind * rows.extent).from_address(rows.array.address))


def staged(plan: Plan, rows: tuple[Rows, ...], written: tuple[bool, ...], pdl: bool) -> None:
    """Run ``plan`` on the current GPU with host arrays: copied there, and what is written copied back into place."""
    from numba import cuda

    device = cuda.get_current_device().id
    copies: dict[tuple[int, int], tuple[Any, np.ndarray, bool]] = {}
    addresses = []
    for view, writes in zip(rows, written, strict=True):
        key = (view.array.address, view.extent)
        if key not in copies:
            words = _words(view)
            copies[key] = (cuda.to_device(words), words, writes)
        else:
            copies[key] = (*copies[key][:2], copies[key][2] or writes)
        addresses.append(copies[key][0].__cuda_array_interface__["data"][0])
    launch(plan, device, 0, tuple(addresses), pdl)
    for on_gpu, words, writes in copies.values():
        if writes:
            on_gpu.copy_to_host(words)

"""The operators in Triton, as a user would write them after reading FlashInfer: R0W0, W0, S0, one program a row.

All arithmetic is fp32. Needs a CUDA device to run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from reference.providers.layout import as_rows, require_unit_stride

# The widest row that one program holds in registers: 32 fp32 values a thread in 32 warps. Wider rows are read twice, the second
# time mostly from L2, in blocks of WIDE_BLOCK: held whole, their values would spill.
WIDEST_IN_REGISTERS = 32768
WIDE_BLOCK = 8192
GATED_BLOCK = 1024


@triton.jit
def _add_norm_kernel(x_ptr, r_ptr, w_ptr, x_stride, r_stride, width, eps, bias, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + row * r_stride + cols, mask=mask, other=0.0).to(tl.float32)
    h = x + r
    tl.store(r_ptr + row * r_stride + cols, h.to(r_ptr.dtype.element_ty), mask=mask)
    # The fp32 sum, not the residual just stored: R0. Masked lanes add zero, and the mean divides by the true width.
    rstd = 1.0 / tl.sqrt(tl.sum(h * h, axis=0) / width + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32) + bias
    tl.store(x_ptr + row * x_stride + cols, (h * rstd * w).to(x_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _wide_add_norm_kernel(x_ptr, r_ptr, w_ptr, x_stride, r_stride, width, eps, bias, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    r_ptr += row * r_stride
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < width
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        h = x + tl.load(r_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        squares += h * h
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / width + eps)
    for start in range(0, width, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < width
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        # Only now is the residual overwritten: the second pass needs the old one for the same fp32 sum.
        h = x + tl.load(r_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(r_ptr + cols, h.to(r_ptr.dtype.element_ty), mask=mask)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32) + bias
        tl.store(x_ptr + cols, (h * rstd * w).to(x_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _norm_kernel(x_ptr, w_ptr, y_ptr, x_stride, y_stride, width, eps, bias, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    h = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(h * h, axis=0) / width + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32) + bias
    tl.store(y_ptr + row * y_stride + cols, (h * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _wide_norm_kernel(x_ptr, w_ptr, y_ptr, x_stride, y_stride, width, eps, bias, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        h = tl.load(x_ptr + cols, mask=cols < width, other=0.0).to(tl.float32)
        squares += h * h
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / width + eps)
    for start in range(0, width, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < width
        h = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32) + bias
        tl.store(y_ptr + cols, (h * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _silu(g):
    return g * tl.sigmoid(g)


@triton.jit
def _gelu(g):
    # erfc where 1 + erf would cancel in the negative tail
    return 0.5 * g * libdevice.erfc(g * -0.7071067811865476)


@triton.jit
def _gelu_tanh(g):
    # (1 + tanh(u)) / 2 = sigmoid(2u), which does not cancel either
    return g * tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g))


@triton.jit
def _gated_kernel(x_ptr, y_ptr, x_stride, y_stride, width, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < width
    gate = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * x_stride + width + cols, mask=mask, other=0.0).to(tl.float32)
    if ACTIVATION == "silu":
        activated = _silu(gate)
    elif ACTIVATION == "gelu":
        activated = _gelu(gate)
    else:
        activated = _gelu_tanh(gate)
    tl.store(y_ptr + row * y_stride + cols, (activated * up).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _swigluoai_kernel(x_ptr, y_ptr, x_stride, y_stride, width, alpha, limit, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    # One run of memory that holds gate, up, gate, up, ...: taken apart in registers.
    both = tl.program_id(1) * (2 * BLOCK) + tl.arange(0, 2 * BLOCK)
    pairs = tl.load(x_ptr + row * x_stride + both, mask=both < 2 * width, other=0.0).to(tl.float32)
    gate, up = tl.split(tl.reshape(pairs, (BLOCK, 2)))
    gate = tl.where(gate > limit, limit, gate)  # a NaN is not greater, and stays
    up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    result = gate * tl.sigmoid(alpha * gate) * (up + 1.0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + row * y_stride + cols, result.to(y_ptr.dtype.element_ty), mask=cols < width)


def fused_add_rmsnorm(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> None:
    """h = input + residual; residual <- h; input <- h * rsqrt(mean(h^2) + eps) * weight. R0W0; both written in place.

    input, residual: (..., width), one of fp32, fp16, bf16; weight: (width,), the same dtype or fp32. Rows may be strided;
    raises `Refused` where the leading axes have no single stride: a copy would swallow the result. After FlashInfer 0.7.2.
    """
    _add_norm(input, residual, weight, eps, 0.0)


def gemma_fused_add_rmsnorm(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> None:
    """As `fused_add_rmsnorm` with `weight + 1`, added in fp32."""
    _add_norm(input, residual, weight, eps, 1.0)


def rmsnorm(input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """input * rsqrt(mean(input^2) + eps) * weight, W0, in a new tensor. Shapes, dtypes and errors as `fused_add_rmsnorm`."""
    return _norm(input, weight, eps, 0.0)


def gemma_rmsnorm(input: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """As `rmsnorm` with `weight + 1`, added in fp32."""
    return _norm(input, weight, eps, 1.0)


def silu_and_mul(input: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, S0, in a new tensor (..., width); input (..., 2 * width): the gate first, `up` second."""
    return _halves(input, "silu")


def gelu_and_mul(input: torch.Tensor) -> torch.Tensor:
    """gelu(gate) * up with the error function; the rest as `silu_and_mul`."""
    return _halves(input, "gelu")


def gelu_tanh_and_mul(input: torch.Tensor) -> torch.Tensor:
    """gelu(gate) * up in its tanh form; the rest as `silu_and_mul`."""
    return _halves(input, "gelu_tanh")


def swigluoai_and_mul(input: torch.Tensor, alpha: float = 1.702, limit: float = 7.0) -> torch.Tensor:
    """g * sigmoid(alpha * g) * (u + 1), g = min(gate, limit), u = clamp(up, -limit, limit), S0, in a new tensor (..., width).

    input (..., 2 * width): the gate in its even columns, `up` in its odd ones.
    """
    return _gated(input, lambda grid, block, *rows: _swigluoai_kernel[grid](*rows, alpha, limit, **block))


def _add_norm(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, bias: float) -> None:
    x, r = _rows(input, "input"), _rows(residual, "residual")  # views: a reshape could copy, and the writes be lost
    require_unit_stride(weight, "weight")
    count, width = x.shape
    if not x.numel():
        return
    kernel, block, warps = _row_launch(width, _add_norm_kernel, _wide_add_norm_kernel)
    with _on(x.device):
        kernel[(count,)](x, r, weight, x.stride(0), r.stride(0), width, eps, bias, BLOCK=block, num_warps=warps)


def _norm(input: torch.Tensor, weight: torch.Tensor, eps: float, bias: float) -> torch.Tensor:
    x = _rows(input, "input")
    require_unit_stride(weight, "weight")
    count, width = x.shape
    output = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    if not x.numel():
        return output
    y = output.view(-1, width)
    kernel, block, warps = _row_launch(width, _norm_kernel, _wide_norm_kernel)
    with _on(x.device):
        kernel[(count,)](x, weight, y, x.stride(0), y.stride(0), width, eps, bias, BLOCK=block, num_warps=warps)
    return output


def _halves(input: torch.Tensor, activation: str) -> torch.Tensor:
    return _gated(input, lambda grid, block, *rows: _gated_kernel[grid](*rows, ACTIVATION=activation, **block))


def _gated(input: torch.Tensor, launch: Callable[..., object]) -> torch.Tensor:
    """The output of `launch(grid, block, x, y, x_stride, y_stride, width)`, rows by column blocks."""
    x = _rows(input, "input")
    count, width = x.shape[0], x.shape[1] // 2
    output = torch.empty((*input.shape[:-1], width), dtype=input.dtype, device=input.device)
    if not output.numel():
        return output
    y = output.view(-1, width)
    block = min(GATED_BLOCK, triton.next_power_of_2(width))
    # 8 elements a thread: one 16-byte access of gate and one of up
    shape = {"BLOCK": block, "num_warps": max(1, block // 256)}
    with _on(x.device):
        launch((count, triton.cdiv(width, block)), shape, x, y, x.stride(0), y.stride(0), width)
    return output


def _row_launch(width: int, whole, wide):
    """The kernel for a row of `width`, its block, and its warps: 16 elements a thread, two 16-byte accesses, up to 32 warps."""
    if width > WIDEST_IN_REGISTERS:
        return wide, WIDE_BLOCK, 16
    block = triton.next_power_of_2(width)
    return whole, block, min(32, max(1, block // 512))


def _rows(tensor: torch.Tensor, name: str) -> torch.Tensor:
    rows = as_rows(tensor, name)
    require_unit_stride(rows, name)
    return rows


def _on(device: torch.device) -> AbstractContextManager:
    """Triton launches on the current device; switching costs microseconds, so only where it is another."""
    return nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device)

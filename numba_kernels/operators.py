"""The public operators. Each states its formula, shapes and what it writes; all of them check before anything is written.

Arrays may be NumPy (float32, float16, ``ml_dtypes.bfloat16``), torch CPU or CUDA tensors, or anything that speaks
``__cuda_array_interface__`` or DLPack. The last axis is the row; leading axes must flatten without a copy. Inside, everything is
fp32. CUDA arrays run on their device, on the caller's current stream; host arrays on the CPU replay where there is no GPU, and
staged through the GPU where there is one.

``contract`` names where a 16-bit implementation rounds: ``R0`` normalises the fp32 sum and ``R1`` the stored one; ``W0`` multiplies
by the weight in fp32 and rounds once, ``W1`` rounds before that multiply too; ``S0`` rounds a gated activation once, ``S1`` also
before the multiply by ``up``. ``enable_pdl``: programmatic dependent launch; None means where the GPU has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import arguments as check
from . import calls
from .arrays import Array, Rows, as_rows, describe


def fused_add_rmsnorm(
    input: Any,
    residual: Any,
    weight: Any,
    eps: float = 1e-6,
    *,
    contract: str = "R0W0",
    enable_pdl: bool | None = None,
) -> None:
    """``h = input + residual; residual <- h; input <- h / sqrt(mean(h²) + eps) * weight``. Both arrays are written in place.

    ``input``, ``residual``: (…, width), one dtype of fp32, fp16, bf16. ``weight``: (width,), the same dtype or fp32. The new
    residual is the fp32 sum rounded once, under every contract. ``contract``: R0W0 (FlashInfer's), R1W0, R0W1 or R1W1.

    Raises TypeError or ValueError, naming the argument, before anything is written: another dtype or rank, rows that are not
    contiguous or would need a copy, shapes that differ, arrays on different devices, memory that overlaps.

    Source: ``flashinfer.fused_add_rmsnorm``.
    """
    _add_norm(input, residual, weight, eps, contract, enable_pdl, 0.0)


def gemma_fused_add_rmsnorm(
    input: Any,
    residual: Any,
    weight: Any,
    eps: float = 1e-6,
    *,
    contract: str = "R0W0",
    enable_pdl: bool | None = None,
) -> None:
    """``h = input + residual; residual <- h; input <- h / sqrt(mean(h²) + eps) * (weight + 1)``, the 1 added in fp32.

    As :func:`fused_add_rmsnorm` otherwise. Source: ``flashinfer.gemma_fused_add_rmsnorm``.
    """
    _add_norm(input, residual, weight, eps, contract, enable_pdl, 1.0)


def rmsnorm(
    input: Any,
    weight: Any,
    eps: float = 1e-6,
    out: Any = None,
    *,
    contract: str = "W0",
    enable_pdl: bool | None = None,
) -> Any:
    """``out = input / sqrt(mean(input²) + eps) * weight``. Returns ``out``; a new array of the input's kind where none is given.

    ``input``, ``out``: (…, width), one dtype of fp32, fp16, bf16; ``out`` may be ``input`` itself. ``weight``: (width,), the same
    dtype or fp32. ``contract``: W0 or W1. Raises as :func:`fused_add_rmsnorm`. Source: ``flashinfer.rmsnorm``.
    """
    return _norm(input, weight, eps, out, contract, enable_pdl, 0.0)


def gemma_rmsnorm(
    input: Any,
    weight: Any,
    eps: float = 1e-6,
    out: Any = None,
    *,
    contract: str = "W0",
    enable_pdl: bool | None = None,
) -> Any:
    """``out = input / sqrt(mean(input²) + eps) * (weight + 1)``, the 1 added in fp32.

    As :func:`rmsnorm` otherwise. Source: ``flashinfer.gemma_rmsnorm``.
    """
    return _norm(input, weight, eps, out, contract, enable_pdl, 1.0)


def silu_and_mul(input: Any, out: Any = None, *, contract: str = "S0", enable_pdl: bool | None = None) -> Any:
    """``out = silu(gate) * up``, ``silu(g) = g / (1 + exp(-g))``; ``gate`` is the first half of a row of ``input``, ``up`` the second.

    ``input``: (…, 2 · width); ``out``: (…, width), the same dtype, a new array where none is given; it is returned. No finite gate
    gives NaN. ``contract``: S0 (FlashInfer's) or S1. Raises TypeError or ValueError, naming the argument, before anything is
    written. Source: ``flashinfer.silu_and_mul``.
    """
    return _gated(input, out, contract, enable_pdl, "silu")


def gelu_and_mul(input: Any, out: Any = None, *, contract: str = "S0", enable_pdl: bool | None = None) -> Any:
    """``out = gelu(gate) * up``, ``gelu(g) = g / 2 * (1 + erf(g / sqrt 2))``. As :func:`silu_and_mul` otherwise.

    Source: ``flashinfer.gelu_and_mul``.
    """
    return _gated(input, out, contract, enable_pdl, "gelu")


def gelu_tanh_and_mul(input: Any, out: Any = None, *, contract: str = "S0", enable_pdl: bool | None = None) -> Any:
    """``out = gelu_tanh(gate) * up``, ``gelu_tanh(g) = g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g³)))``.

    As :func:`silu_and_mul` otherwise. Source: ``flashinfer.gelu_tanh_and_mul``.
    """
    return _gated(input, out, contract, enable_pdl, "gelu_tanh")


def _add_norm(input, residual, weight, eps, contract, enable_pdl, weight_bias: float) -> None:
    check.check_contract("add_norm", contract)
    eps32 = check.check_eps(eps)
    pdl = check.check_pdl(enable_pdl)
    x, r, w = describe("input", input), describe("residual", residual), describe("weight", weight)
    check.check_device([x, r, w])
    check.check_same(r, x)
    check.check_weight(w, x)
    x_rows, r_rows, w_rows = check.writable_rows(x), check.writable_rows(r), as_rows(w)
    check.check_apart(r_rows, x_rows)
    check.check_apart(x_rows, w_rows)
    check.check_apart(r_rows, w_rows)
    if x_rows.count == 0:
        return
    check.check_row_width(x)
    plan = calls.NormPlan(
        x_rows.count,
        x_rows.width,
        x_rows.stride,
        r_rows.stride,
        x_rows.stride,
        x.format,
        w.format,
        True,
        contract.startswith("R1"),
        contract.endswith("W1"),
        weight_bias,
        int(eps32.view(np.uint32)),
    )
    _run(plan, (x_rows, r_rows, w_rows, x_rows), (True, True, False, True), pdl)


def _norm(input, weight, eps, out, contract, enable_pdl, weight_bias: float):
    check.check_contract("norm", contract)
    eps32 = check.check_eps(eps)
    pdl = check.check_pdl(enable_pdl)
    x, w = describe("input", input), describe("weight", weight)
    check.check_device([x, w])
    check.check_weight(w, x)
    x_rows, w_rows = as_rows(x), as_rows(w)
    out, y_rows = _output(out, x, x.shape)
    check.check_apart(y_rows, x_rows, may_be_same=True)
    check.check_apart(y_rows, w_rows)
    if x_rows.count == 0:
        return out
    check.check_row_width(x)
    plan = calls.NormPlan(
        x_rows.count,
        x_rows.width,
        x_rows.stride,
        x_rows.stride,
        y_rows.stride,
        x.format,
        w.format,
        False,
        False,
        contract == "W1",
        weight_bias,
        int(eps32.view(np.uint32)),
    )
    _run(plan, (x_rows, x_rows, w_rows, y_rows), (False, False, False, True), pdl)
    return out


def _gated(input, out, contract, enable_pdl, activation: str):
    check.check_contract("gated", contract)
    pdl = check.check_pdl(enable_pdl)
    x = describe("input", input)
    if x.width % 2:
        raise ValueError(f"input: last axis of {x.width}; an even number is needed, gate and up side by side")
    x_rows = as_rows(x)
    out, y_rows = _output(out, x, (*x.shape[:-1], x.width // 2))
    check.check_apart(y_rows, x_rows)
    if x_rows.count == 0:
        return out
    check.check_row_width(x)
    plan = calls.GatedPlan(
        x_rows.count, y_rows.width, x_rows.stride, y_rows.stride, x.format, activation, contract == "S1"
    )
    _run(plan, (x_rows, y_rows), (False, True), pdl)
    return out


def _output(out: Any, like: Array, shape: tuple[int, ...]) -> tuple[Any, Rows]:
    """The caller's ``out``, checked, or a new array of the kind of ``like``; and its rows."""
    if out is None:
        out = _new(like, shape)
    array = describe("out", out)
    check.check_device([like, array])
    if array.format != like.format:
        raise TypeError(f"out: {array.format} beside input in {like.format}; the same dtype is needed")
    if array.shape != shape:
        raise ValueError(f"out: shape {array.shape}; {shape} is needed")
    return out, check.writable_rows(array)


def _new(like: Array, shape: tuple[int, ...]) -> Any:
    """An uninitialised array of ``shape`` in the library of ``like``'s owner."""
    owner = like.owner
    if isinstance(owner, np.ndarray):
        return np.empty(shape, owner.dtype)
    if hasattr(owner, "new_empty"):  # torch
        return owner.new_empty(shape)
    library = type(owner).__module__.split(".")[0]
    if library == "cupy":
        import cupy

        return cupy.empty(shape, owner.dtype)
    raise TypeError(
        f"out: pass an array for the result; {type(owner).__module__}.{type(owner).__name__} can't be allocated here"
    )


def _run(plan: calls.Plan, rows: tuple[Rows, ...], written: tuple[bool, ...], pdl: bool | None) -> None:
    array = rows[0].array
    if calls.replays(array.device):
        calls.replay(plan, rows)
    elif array.device < 0:
        calls.staged(plan, rows, written, pdl is not False)
    else:
        calls.launch(plan, array.device, array.stream, tuple(r.array.address for r in rows), pdl is not False)

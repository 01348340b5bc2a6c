"""The public operators. Each states its formula, shapes and what it writes; all of them check before anything is written.

Arrays may be NumPy (float32, float16, ``ml_dtypes.bfloat16``), torch CPU or CUDA tensors, or anything that speaks
``__cuda_array_interface__`` or DLPack. The last axis is the row; leading axes must flatten without a copy. Inside, everything is
fp32. CUDA arrays run on their device, on the caller's current stream; host arrays on the CPU replay where there is no GPU, and
staged through the GPU where there is one.

``contract`` names where a 16-bit implementation rounds: ``R0`` normalises the fp32 sum and ``R1`` the stored one; ``W0``
multiplies by the weight in fp32 and rounds once, ``W1`` rounds before that too; ``S0`` rounds a gated activation once, ``S1``
also before the multiply by ``up``. ``enable_pdl``: programmatic dependent launch; None means where the GPU has it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from . import arguments as check
from . import dispatch
from .arrays import CPU, Array, Rows, as_rows, describe
from .plans import GatedPlan, NormPlan, Plan


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
    add_norm(input, residual, weight, eps, contract, enable_pdl, 0.0)


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
    add_norm(input, residual, weight, eps, contract, enable_pdl, 1.0)


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
    return norm(input, weight, eps, out, contract, enable_pdl, 0.0)


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
    return norm(input, weight, eps, out, contract, enable_pdl, 1.0)


def silu_and_mul(input: Any, out: Any = None, *, contract: str = "S0", enable_pdl: bool | None = None) -> Any:
    """``out = silu(gate) * up``, ``silu(g) = g / (1 + exp(-g))``; ``gate`` is the first half of a row of ``input``, ``up`` the
    second.

    ``input``: (…, 2 · width); ``out``: (…, width), the same dtype, a new array where none is given; it is returned. No finite
    gate gives NaN. ``contract``: S0 (FlashInfer's) or S1. Raises TypeError or ValueError, naming the argument, before anything is
    written. Source: ``flashinfer.silu_and_mul``.
    """
    return gated(input, out, contract, enable_pdl, "silu")


def gelu_and_mul(input: Any, out: Any = None, *, contract: str = "S0", enable_pdl: bool | None = None) -> Any:
    """``out = gelu(gate) * up``, ``gelu(g) = g / 2 * (1 + erf(g / sqrt 2))``. As :func:`silu_and_mul` otherwise.

    Source: ``flashinfer.gelu_and_mul``.
    """
    return gated(input, out, contract, enable_pdl, "gelu")


def gelu_tanh_and_mul(input: Any, out: Any = None, *, contract: str = "S0", enable_pdl: bool | None = None) -> Any:
    """``out = gelu_tanh(gate) * up``, ``gelu_tanh(g) = g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g³)))``.

    As :func:`silu_and_mul` otherwise. Source: ``flashinfer.gelu_tanh_and_mul``.
    """
    return gated(input, out, contract, enable_pdl, "gelu_tanh")


# A call like an earlier one: the same kinds of torch CUDA tensors and options, whose checks passed then. What the key does not
# hold (addresses, so alignment and overlap; the current stream and device) is looked at again each time.
_KNOWN: dict[Hashable, tuple[Any, ...]] = {}
_KNOWN_LIMIT = 8192  # kinds of calls kept, about a kilobyte each: serving code meets every batch size


def add_norm(input, residual, weight, eps, contract, enable_pdl, weight_bias: float, *, direct: bool = False) -> None:
    """Both fused_add_rmsnorms. ``direct``: PyTorch's dispatcher has seen the call and asks for the kernel."""
    key: Hashable = None
    try:
        key = (
            input.__class__,
            residual.__class__,
            weight.__class__,
            input.shape,
            input.stride(),
            input.dtype,
            input.get_device(),
            residual.shape,
            residual.stride(),
            residual.dtype,
            residual.get_device(),
            weight.shape,
            weight.stride(),
            weight.dtype,
            weight.get_device(),
            eps,
            contract,
            enable_pdl,
            weight_bias,
        )
        known = _KNOWN.get(key)
    except (AttributeError, TypeError, RuntimeError):  # not torch tensors, or not strided ones
        key, known = None, None
    if known is not None and not (input.requires_grad or residual.requires_grad):
        prepared, current_stream, modes, tell_written, device, x_bytes, r_bytes, w_bytes = known
        x, r, w = input.data_ptr(), residual.data_ptr(), weight.data_ptr()
        apart = x + x_bytes <= r or r + r_bytes <= x
        apart = apart and (x + x_bytes <= w or w + w_bytes <= x) and (r + r_bytes <= w or w + w_bytes <= r)
        if apart and x and r and w and (direct or not modes()):
            prepared.launch((x, r, w, x), (x | r) & 15 | (w & 15) << 4, current_stream(device))
            tell_written((input, residual))
            return

    if not direct and dispatch.wants(input, residual, weight):
        name = "gemma_fused_add_rmsnorm" if weight_bias else "fused_add_rmsnorm"
        dispatch.traced(name)(input, residual, weight, eps, contract=contract, enable_pdl=enable_pdl)
        return
    check.check_contract("add_norm", contract)
    eps32 = check.check_eps(eps)
    check.check_pdl(enable_pdl)
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
    plan = NormPlan(
        rows=x_rows.count,
        width=x_rows.width,
        x_stride=x_rows.stride,
        residual_stride=r_rows.stride,
        out_stride=x_rows.stride,
        storage=x.format,
        weight=w.format,
        adds_residual=True,
        rounds_sum=contract.startswith("R1"),
        rounds_norm=contract.endswith("W1"),
        weight_bias=weight_bias,
        eps_bits=int(eps32.view(np.uint32)),
    )
    _run(plan, (x_rows, r_rows, w_rows, x_rows), (True, True, False, True), enable_pdl, key)
    dispatch.tell_written(input, residual)


def norm(input, weight, eps, out, contract, enable_pdl, weight_bias: float, *, direct: bool = False):
    """Both rmsnorms. ``direct``: as in :func:`add_norm`."""
    key: Hashable = None
    try:
        given = out
        if out is None and input.get_device() >= 0:
            given = input.new_empty(input.shape)
        key = (
            input.__class__,
            weight.__class__,
            given.__class__,
            input.shape,
            input.stride(),
            input.dtype,
            input.get_device(),
            weight.shape,
            weight.stride(),
            weight.dtype,
            weight.get_device(),
            given.shape,
            given.stride(),
            given.dtype,
            given.get_device(),
            eps,
            contract,
            enable_pdl,
            weight_bias,
        )
        known = _KNOWN.get(key)
    except (AttributeError, TypeError, RuntimeError):
        key, known, given = None, None, out
    if known is not None and not given.requires_grad:
        prepared, current_stream, modes, tell_written, device, x_bytes, w_bytes, y_bytes = known
        x, w, y = input.data_ptr(), weight.data_ptr(), given.data_ptr()
        apart = x + x_bytes <= y or y + y_bytes <= x or (x == y and x_bytes == y_bytes)  # out may be input
        if apart and (y + y_bytes <= w or w + w_bytes <= y) and x and w and y and (direct or not modes()):
            prepared.launch((x, x, w, y), (x | y) & 15 | (w & 15) << 4, current_stream(device))
            if out is not None:
                tell_written((out,))
            return given

    if not direct and dispatch.wants(input, weight, out):
        name = "gemma_rmsnorm" if weight_bias else "rmsnorm"
        return dispatch.traced(name)(input, weight, eps, out, contract=contract, enable_pdl=enable_pdl)
    check.check_contract("norm", contract)
    eps32 = check.check_eps(eps)
    check.check_pdl(enable_pdl)
    x, w = describe("input", input), describe("weight", weight)
    check.check_device([x, w])
    check.check_weight(w, x)
    x_rows, w_rows = as_rows(x), as_rows(w)
    given, y_rows = _output(given, x, x.shape)
    check.check_apart(y_rows, x_rows, may_be_same=True)
    check.check_apart(y_rows, w_rows)
    if x_rows.count == 0:
        return given
    check.check_row_width(x)
    plan = NormPlan(
        rows=x_rows.count,
        width=x_rows.width,
        x_stride=x_rows.stride,
        residual_stride=x_rows.stride,
        out_stride=y_rows.stride,
        storage=x.format,
        weight=w.format,
        adds_residual=False,
        rounds_sum=False,
        rounds_norm=contract == "W1",
        weight_bias=weight_bias,
        eps_bits=int(eps32.view(np.uint32)),
    )
    _run(plan, (x_rows, x_rows, w_rows, y_rows), (False, False, False, True), enable_pdl, key)
    dispatch.tell_written(out)
    return given


def gated(input, out, contract, enable_pdl, activation: str, *, direct: bool = False):
    """The three gated activations. ``direct``: as in :func:`add_norm`."""
    key: Hashable = None
    try:
        given = out
        if out is None and input.get_device() >= 0:
            shape = input.shape
            given = input.new_empty((*shape[:-1], shape[-1] // 2))
        key = (
            input.__class__,
            given.__class__,
            input.shape,
            input.stride(),
            input.dtype,
            input.get_device(),
            given.shape,
            given.stride(),
            given.dtype,
            given.get_device(),
            contract,
            enable_pdl,
            activation,
        )
        known = _KNOWN.get(key)
    except (AttributeError, TypeError, IndexError, RuntimeError):
        key, known, given = None, None, out
    if known is not None and not given.requires_grad:
        prepared, current_stream, modes, tell_written, device, x_bytes, y_bytes = known
        x, y = input.data_ptr(), given.data_ptr()
        if (x + x_bytes <= y or y + y_bytes <= x) and x and y and (direct or not modes()):
            prepared.launch((x, y), (x | y) & 15, current_stream(device))
            if out is not None:
                tell_written((out,))
            return given

    if not direct and dispatch.wants(input, out):
        return dispatch.traced(f"{activation}_and_mul")(input, out, contract=contract, enable_pdl=enable_pdl)
    check.check_contract("gated", contract)
    check.check_pdl(enable_pdl)
    x = describe("input", input)
    width = check.half_width(x.width)
    x_rows = as_rows(x)
    given, y_rows = _output(given, x, (*x.shape[:-1], width))
    check.check_apart(y_rows, x_rows)
    if x_rows.count == 0:
        return given
    check.check_row_width(x)
    plan = GatedPlan(
        rows=x_rows.count,
        width=y_rows.width,
        x_stride=x_rows.stride,
        out_stride=y_rows.stride,
        storage=x.format,
        activation=activation,
        rounds_activation=contract == "S1",
    )
    _run(plan, (x_rows, y_rows), (False, True), enable_pdl, key)
    dispatch.tell_written(out)
    return given


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
    raise TypeError(f"out: pass an array for the result; {type(owner).__module__}.{type(owner).__name__} can't be allocated here")


def _run(plan: Plan, rows: tuple[Rows, ...], written: tuple[bool, ...], enable_pdl: bool | None, key: Hashable | None) -> None:
    """Run a checked call, and remember it under ``key`` where the tensors are torch's, on a GPU.

    ``rows`` are the kernel's buffers in its order; the first of each array stands for it in what is remembered.
    """
    device = rows[0].array.device
    if device == CPU:
        from . import host

        if host.replays():
            host.replay(plan, rows)
        else:
            host.stage(plan, rows, written, enable_pdl)
        return
    from .launch import Prepared, alignment_of

    prepared = Prepared(plan, device, enable_pdl)
    addresses = tuple(r.array.address for r in rows)
    prepared.launch(addresses, alignment_of(addresses), rows[0].array.stream)
    if key is not None:
        from torch._C import _cuda_getCurrentRawStream as current_stream
        from torch.autograd.graph import increment_version as tell_written

        arrays = {r.array.name: r.extent * r.array.itemsize for r in rows}
        if len(_KNOWN) >= _KNOWN_LIMIT:
            _KNOWN.pop(next(iter(_KNOWN)), None)
        # A fresh one: this one's variants are keyed by every address, a remembered call's by the fewest.
        _KNOWN[key] = (
            Prepared(plan, device, enable_pdl),
            current_stream,
            dispatch.modes(),
            tell_written,
            device,
            *arrays.values(),
        )

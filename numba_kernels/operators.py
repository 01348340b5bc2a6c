"""The public operators. Each states its formula, shapes and what it writes; its body follows from the declaration above it.

Arrays may be NumPy (float32, float16, ``ml_dtypes.bfloat16``), torch CPU or CUDA tensors, or anything that speaks
``__cuda_array_interface__`` or DLPack. The last axis is the row; leading axes must flatten without a copy. Inside, everything is
fp32. CUDA arrays run on their device, on the caller's current stream; host arrays on the CPU emulator where there is no GPU, and
staged through the GPU where there is one. All is checked before anything is written.

``contract`` names where a 16-bit implementation rounds: ``R0`` normalises the fp32 sum and ``R1`` the stored one; ``W0``
multiplies by the weight in fp32 and rounds once, ``W1`` rounds before that too; ``S0`` rounds a gated activation once, ``S1``
also before the multiply by ``up``. ``enable_pdl``: programmatic dependent launch; None means where the GPU has it.
"""

from __future__ import annotations

from typing import Any

from .declarations import ACTIVATION, EPS, NORM, OPERATORS, SUM, Flag, Gated, Norm, Number, Role, Rounding
from .runtime.calls import operator

ROWS, WRITTEN_ROWS, VECTOR, HALVES, PAIRS = Role.ROWS, Role.WRITTEN_ROWS, Role.VECTOR, Role.HALVES, Role.PAIRS


@operator(
    tensors={"input": WRITTEN_ROWS, "residual": WRITTEN_ROWS, "weight": VECTOR},
    parameters=(EPS,),
    roundings=(SUM, NORM),
    launch=Norm(),
)
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


@operator(
    tensors={"input": WRITTEN_ROWS, "residual": WRITTEN_ROWS, "weight": VECTOR},
    parameters=(EPS,),
    roundings=(SUM, NORM),
    launch=Norm(weight_bias=1.0),
)
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


@operator(tensors={"input": ROWS, "weight": VECTOR}, parameters=(EPS,), roundings=(NORM,), launch=Norm())
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


@operator(tensors={"input": ROWS, "weight": VECTOR}, parameters=(EPS,), roundings=(NORM,), launch=Norm(weight_bias=1.0))
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


@operator(tensors={"input": HALVES}, roundings=(ACTIVATION,), launch=Gated("silu"))
def silu_and_mul(input: Any, out: Any = None, *, contract: str = "S0", enable_pdl: bool | None = None) -> Any:
    """``out = silu(gate) * up``, ``silu(g) = g / (1 + exp(-g))``; ``gate`` is the first half of a row of ``input``, ``up`` the
    second.

    ``input``: (…, 2 · width); ``out``: (…, width), the same dtype, a new array where none is given; it is returned. No finite
    gate gives NaN. ``contract``: S0 (FlashInfer's) or S1. Raises TypeError or ValueError, naming the argument, before anything is
    written. Source: ``flashinfer.silu_and_mul``.
    """


@operator(tensors={"input": HALVES}, roundings=(ACTIVATION,), launch=Gated("gelu"))
def gelu_and_mul(input: Any, out: Any = None, *, contract: str = "S0", enable_pdl: bool | None = None) -> Any:
    """``out = gelu(gate) * up``, ``gelu(g) = g / 2 * (1 + erf(g / sqrt 2))``. As :func:`silu_and_mul` otherwise.

    Source: ``flashinfer.gelu_and_mul``.
    """


@operator(tensors={"input": HALVES}, roundings=(ACTIVATION,), launch=Gated("gelu_tanh"))
def gelu_tanh_and_mul(input: Any, out: Any = None, *, contract: str = "S0", enable_pdl: bool | None = None) -> Any:
    """``out = gelu_tanh(gate) * up``, ``gelu_tanh(g) = g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g³)))``.

    As :func:`silu_and_mul` otherwise. Source: ``flashinfer.gelu_tanh_and_mul``.
    """


@operator(
    tensors={"input": PAIRS},
    parameters=(Number("alpha"), Number("limit", least=0.0), Flag("interleaved")),
    roundings=(Rounding("S", choices=3),),
    launch=Gated("swigluoai"),
)
def swigluoai_and_mul(
    input: Any,
    alpha: float = 1.702,
    limit: float = 7.0,
    out: Any = None,
    *,
    interleaved: bool = True,
    contract: str = "S0",
    enable_pdl: bool | None = None,
) -> Any:
    """``g = min(gate, limit); u = clamp(up, -limit, limit); out = g * sigmoid(alpha * g) * (u + 1)``: the gate of gpt-oss.

    ``input``: (…, 2 · width), ``gate`` in its even columns and ``up`` in its odd ones, or, with ``interleaved=False``, in its
    halves; ``out``: (…, width), the same dtype, a new array where none is given; it is returned. ``alpha``, ``limit``: fp32
    numbers, the limit not negative. A NaN goes through the clamps. ``contract``: S0, S1, or S2, which rounds after every
    operation as eager PyTorch does. Raises as :func:`silu_and_mul`.

    Source: ``GptOssExperts`` in transformers' models/gpt_oss; vLLM's ``swigluoai_and_mul``.
    """


__all__ = list(OPERATORS)

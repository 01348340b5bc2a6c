"""FlashInfer: its public operators, and its two norm backends by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

from reference.operators import operator
from reference.operators.contract import Contract
from reference.providers.claim import ADD, GATED, GEMMA_ADD, GEMMA_NORM, NORM, Claim
from reference.providers.layout import (
    as_rows,
    require_aligned,
    require_contiguous,
    require_dtype,
    require_rows,
    require_unit_stride,
    vector_bytes,
)
from reference.providers.library import LibraryProvider

_HALVES = (torch.float16, torch.bfloat16)
# Shared memory that a block may opt in to where torch does not say: 227 KiB, Hopper's.
_OPT_IN_BYTES = 227 * 1024


_FLASHINFER = "flashinfer-python 0.7.2.post1"
CLAIMS = (
    Claim(
        "flashinfer",
        ADD + GEMMA_ADD,
        "R0W0",
        f"{_FLASHINFER}: data/include/flashinfer/norm.cuh and norm/kernels/fused_add_rmsnorm.py",
        "gpu",
    ),
    Claim(
        "flashinfer",
        NORM + GEMMA_NORM,
        "W0",
        f"{_FLASHINFER}: data/include/flashinfer/norm.cuh and norm/kernels/rmsnorm.py",
        "gpu",
    ),
    Claim(
        "flashinfer",
        GATED,
        "S0",
        f"{_FLASHINFER}: jit/activation.py, data/include/flashinfer/activation.cuh",
        "gpu",
        "gelu is 1 + erf and tanh-gelu 1 + tanh (approximate), so the negative tail cancels",
    ),
)


class FlashInfer(LibraryProvider):
    """FlashInfer's public functions as installed: R0W0, W0, S0; Gemma's `weight + 1` in fp32; add_norm in place.

    Norms: h = fp32(input) + fp32(residual), kept in fp32; output = T(h * rstd * (bias + fp32(weight))); approximate
    rsqrt. Which backend runs, FlashInfer decides: its CuTe DSL kernels, unless FLASHINFER_USE_CUDA_NORM=1 was set at
    import, the DSL does not import, or it cannot target the device (norm/__init__.py, `_use_cuda_norm`).
    Gated: T(act(fp32(gate)) * fp32(up)), with `__expf`, 1 + erf, or 1 + an approximate tanh; CUDA only.

    Takes rows (rows, width): N-D tensors go in as a view. Refused: fp32 for the gated operators and the CUDA norms
    (their dispatch has fp16 and bf16 only); a weight of another dtype than the input (the CUDA kernels would
    reinterpret its bytes); zero rows (empty grid); addresses or strides that its vector loads can't take; gated inputs
    that are not contiguous (their kernel ignores strides); for the CUDA add_norm, rows whose fp32 copy exceeds shared
    memory. Since 0.7.2 the activations take any width: the 16-byte rule of earlier versions is gone.

    Source: flashinfer-python 0.7.2.post1, flashinfer/norm/__init__.py, norm/kernels/*.py, data/csrc/norm.cu,
    data/include/flashinfer/{norm,activation}.cuh, activation.py, jit/activation.py.
    """

    name = "flashinfer"
    library = "flashinfer"
    on_record = CLAIMS
    modules: tuple[str, ...] = ("flashinfer",)
    distribution = "flashinfer-python"
    in_place = True

    def _uses_cuda_norm(self, device: torch.device) -> bool:
        return import_module("flashinfer.norm")._use_cuda_norm(device)

    def _refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        which = operator(op)
        if which.activation:
            return None if dtype in _HALVES else f"{self.name}'s activations take fp16 and bf16 only"
        if not self._uses_cuda_norm(device):
            return None
        if dtype not in _HALVES:
            return f"{self.name}'s CUDA norms take fp16 and bf16 only"
        return _exceeds_shared_memory(width, dtype.itemsize, device) if which.mutated else None

    def _check(self, op: str, *tensors: torch.Tensor) -> None:
        rows = as_rows(tensors[0], "input")
        require_rows(rows, "input")
        require_unit_stride(rows, "input")
        if operator(op).activation:
            require_contiguous(rows, "input")
            require_aligned(rows, "input", vector_bytes(rows.shape[1] // 2, rows.element_size()))
            return
        weight = tensors[-1]
        require_dtype(weight, "weight", rows.dtype)
        require_unit_stride(weight, "weight")
        cuda = self._uses_cuda_norm(rows.device)
        require_aligned(weight, "weight", vector_bytes(rows.shape[1], rows.element_size()) if cuda else 16)
        for name, tensor in zip(operator(op).inputs, tensors[:-1], strict=False):
            each = as_rows(tensor, name)
            require_unit_stride(each, name)
            # The CuTe kernels are compiled for compact rows with up to 128-byte alignment, for strided rows with 16.
            most = 128 if not cuda and each.is_contiguous() else 16
            require_aligned(each, name, vector_bytes(each.shape[1], each.element_size(), most))

    def _native(self, op: str) -> Callable:
        return _adapted(op, getattr(import_module("flashinfer"), op))


class FlashInferCuda(FlashInfer):
    """FlashInfer's CUDA norms, whatever the installed default: `get_norm_module()`, compiled by its JIT. R0W0, W0.

    fp32 sums wait in shared memory, squares are reduced by xor shuffles, then across warps; programmatic dependent
    launch from Hopper on, as the public functions have it. The rest as `flashinfer`; no gated operators, which have one
    backend. Source: flashinfer-python 0.7.2.post1, data/csrc/norm.cu.
    """

    name = "flashinfer-cuda"

    def claims(self, op: str) -> Contract | None:
        """As `flashinfer` for the norms; None for the gated operators."""
        return None if operator(op).activation else super().claims(op)

    def _uses_cuda_norm(self, device: torch.device) -> bool:
        return True

    def _native(self, op: str) -> Callable:
        kernel = getattr(import_module("flashinfer.norm").get_norm_module(), op)
        supports_pdl = import_module("flashinfer.utils").device_support_pdl
        if not operator(op).mutated:

            def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
                output = torch.empty_like(input)
                kernel(output, input, weight, eps, supports_pdl(input.device))
                return output

            return _adapted(op, norm)

        def add_norm(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
            kernel(input, residual, weight, eps, supports_pdl(input.device))

        return _adapted(op, add_norm)


class FlashInferCute(FlashInfer):
    """FlashInfer's CuTe DSL norms, whatever the installed default. R0W0, W0; fp32 too.

    h stays in registers; rows are split over a cluster where they are wide; `rsqrt(fastmath=True)`. The rest as
    `flashinfer`; no gated operators. Needs nvidia-cutlass-dsl. Source: flashinfer-python 0.7.2.post1,
    norm/kernels/fused_add_rmsnorm.py and rmsnorm.py.
    """

    name = "flashinfer-cute"
    modules = ("flashinfer", "flashinfer.norm.kernels")

    def claims(self, op: str) -> Contract | None:
        """As `flashinfer` for the norms; None for the gated operators."""
        return None if operator(op).activation else super().claims(op)

    def _uses_cuda_norm(self, device: torch.device) -> bool:
        return False

    def _native(self, op: str) -> Callable:
        kernels = import_module("flashinfer.norm.kernels")
        supports_pdl = import_module("flashinfer.utils").device_support_pdl
        bias = operator(op).weight_bias
        if not operator(op).mutated:

            def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
                output = torch.empty_like(input)
                kernels.rmsnorm_cute(input, weight, output, eps, weight_bias=bias, enable_pdl=supports_pdl(input.device))
                return output

            return _adapted(op, norm)

        def add_norm(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
            pdl = supports_pdl(input.device)
            kernels.fused_add_rmsnorm_cute(input, residual, weight, eps, weight_bias=bias, enable_pdl=pdl)

        return _adapted(op, add_norm)


def _adapted(op: str, kernel: Callable) -> Callable:
    """`kernel`, which takes rows (rows, width) and explicit eps, on N-D tensors; add_norm returns what it wrote."""
    which = operator(op)
    if which.activation:
        return kernel
    if not which.mutated:

        def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
            return kernel(as_rows(input, "input"), weight, eps).view(input.shape)

        return norm

    def add_norm(
        input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        kernel(as_rows(input, "input"), as_rows(residual, "residual"), weight, eps)
        return input, residual

    return add_norm


def _exceeds_shared_memory(width: int, itemsize: int, device: torch.device) -> str | None:
    """norm.cuh keeps one fp32 per warp, rounded up to four, and the whole row in fp32 in dynamic shared memory."""
    vector = vector_bytes(width, itemsize) // itemsize
    warps = -(-min(1024, width // vector) // 32)
    needed = (-(-warps // 4) * 4 + width) * 4
    properties = torch.cuda.get_device_properties(device)
    most = getattr(properties, "shared_memory_per_block_optin", _OPT_IN_BYTES)
    return f"a row needs {needed} bytes of shared memory, a block has {most}" if needed > most else None

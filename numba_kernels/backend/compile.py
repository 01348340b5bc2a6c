"""From a kernel to PTX, and from PTX to machine code. Needs libNVVM and nvJitLink, not a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types

from ..kernels.activations import activation_of
from ..kernels.config import GatedConfig, Kernel, NormConfig, NormOperation, TextbookConfig
from ..kernels.gated import make_gated_kernel
from ..kernels.norms import make_norm_kernel
from ..kernels.textbook import make_textbook_gated, make_textbook_norm

NORM_SIGNATURE = (types.uint64,) * 4 + (types.int64,) * 9
GATED_SIGNATURE = (types.uint64,) * 2 + (types.int64,) * 4


def kernel_function(kernel: Kernel) -> Callable[..., Any]:
    """The Python function of a kernel: what is compiled here and what the emulator runs."""
    operation, config = kernel.operation, kernel.config
    if isinstance(operation, NormOperation):
        if isinstance(config, TextbookConfig):
            return make_textbook_norm(operation, config)
        assert isinstance(config, NormConfig)
        return make_norm_kernel(operation, config)
    if isinstance(config, TextbookConfig):
        return make_textbook_gated(operation, config)
    assert isinstance(config, GatedConfig)
    return make_gated_kernel(operation, config)


def signature_of(kernel: Kernel) -> tuple[Any, ...]:
    """The types of the kernel's parameters."""
    if isinstance(kernel.operation, NormOperation):
        return NORM_SIGNATURE
    return GATED_SIGNATURE + (types.int64,) * len(activation_of(kernel.operation.activation).parameters)


def compile_to_ptx(kernel: Kernel, cc: tuple[int, int]) -> str:
    """PTX for compute capability ``cc``, with the block size as its launch bound.

    Products and sums stay apart (``mul.rn``, ``add.rn``): the fused multiply-adds are those that the source names, so that a
    result's bits are the source's, with any compiler and on the emulator. ``cuda.compile_ptx`` has no such option.
    """
    from numba.cuda.compiler import compile_cuda, kernel_fixup  # type: ignore[attr-defined]
    from numba.cuda.cudadrv import nvvm

    config = kernel.config
    bounds = (config.threads, config.blocks_per_processor) if config.blocks_per_processor > 1 else config.threads
    options = {"opt": 3, "fma": False}
    made = compile_cuda(kernel_function(kernel), types.void, signature_of(kernel), nvvm_options=options, cc=cc)
    entry = made.library.get_function(made.fndesc.llvm_func_name)
    kernel_fixup(entry, False)
    nvvm.set_launch_bounds(entry, bounds)  # type: ignore[attr-defined]
    return made.library.get_asm_str(cc=cc)


def assemble(ptx: str, cc: tuple[int, int]) -> tuple[bytes, str]:
    """The cubin of ``ptx`` and ptxas's report (registers, spills, stack)."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    options = LinkerOptions(arch=f"sm_{cc[0]}{cc[1]}", ptxas_options=["-v"])
    linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=options)
    return bytes(linker.link("cubin").code), linker.get_info_log()

"""The operators in PyTorch's own dispatcher, as ``torch.ops.numba_kernels.*``: for ``torch.compile``, fake tensors and export.

Imported with ``numba_kernels`` where torch was imported before it; ``import numba_kernels.torch_ops`` does it at any time.
Compiled code that calls ``numba_kernels.rmsnorm`` and its siblings then keeps them as one operator each, without a graph break.

Each has a mutating form, as in FlashInfer, and a functional one, which leaves its inputs alone:

========================================= ===============================================
mutating                                  functional
========================================= ===============================================
``fused_add_rmsnorm``                     ``add_rmsnorm -> (output, residual)``
``gemma_fused_add_rmsnorm``               ``gemma_add_rmsnorm -> (output, residual)``
``rmsnorm_out``, ``gemma_rmsnorm_out``    ``rmsnorm``, ``gemma_rmsnorm``
``silu_and_mul_out`` (and the two gelus)  ``silu_and_mul`` (and the two gelus)
========================================= ===============================================
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from . import operators

NAMESPACE = "numba_kernels"


def _define(name: str, schema: str, mutates: tuple[str, ...], run: Callable, fake: Callable) -> None:
    operator = torch.library.custom_op(f"{NAMESPACE}::{name}", run, mutates_args=mutates, schema=schema)
    operator.register_fake(fake)


def _define_add_norm(name: str, run: Callable) -> None:
    arguments = "Tensor weight, float eps=1e-6, str contract='R0W0', bool? enable_pdl=None"

    def mutating(input, residual, weight, eps=1e-6, contract="R0W0", enable_pdl=None):
        run(input, residual, weight, eps, contract=contract, enable_pdl=enable_pdl)

    def functional(input, residual, weight, eps=1e-6, contract="R0W0", enable_pdl=None):
        output, new_residual = input.clone(), residual.clone()
        run(output, new_residual, weight, eps, contract=contract, enable_pdl=enable_pdl)
        return output, new_residual

    def like_both(input, residual, weight, eps=1e-6, contract="R0W0", enable_pdl=None):
        return torch.empty_like(input), torch.empty_like(residual)

    def nothing(input, residual, weight, eps=1e-6, contract="R0W0", enable_pdl=None):
        return None

    schema = f"(Tensor(a!) input, Tensor(b!) residual, {arguments}) -> ()"
    _define(name, schema, ("input", "residual"), mutating, nothing)
    schema = f"(Tensor input, Tensor residual, {arguments}) -> (Tensor, Tensor)"
    _define(name.replace("fused_", ""), schema, (), functional, like_both)


def _define_norm(name: str, run: Callable) -> None:
    arguments = "Tensor weight, float eps=1e-6, str contract='W0', bool? enable_pdl=None"

    def functional(input, weight, eps=1e-6, contract="W0", enable_pdl=None):
        return run(input, weight, eps, contract=contract, enable_pdl=enable_pdl)

    def fake(input, weight, eps=1e-6, contract="W0", enable_pdl=None):
        return input.new_empty(input.shape)

    def mutating(out, input, weight, eps=1e-6, contract="W0", enable_pdl=None):
        run(input, weight, eps, out, contract=contract, enable_pdl=enable_pdl)

    def nothing(out, input, weight, eps=1e-6, contract="W0", enable_pdl=None):
        return None

    _define(name, f"(Tensor input, {arguments}) -> Tensor", (), functional, fake)
    _define(f"{name}_out", f"(Tensor(a!) out, Tensor input, {arguments}) -> ()", ("out",), mutating, nothing)


def _define_gated(name: str, run: Callable) -> None:
    arguments = "str contract='S0', bool? enable_pdl=None"

    def functional(input, contract="S0", enable_pdl=None):
        return run(input, contract=contract, enable_pdl=enable_pdl)

    def fake(input, contract="S0", enable_pdl=None):
        return input.new_empty((*input.shape[:-1], input.shape[-1] // 2))

    def mutating(out, input, contract="S0", enable_pdl=None):
        run(input, out, contract=contract, enable_pdl=enable_pdl)

    def nothing(out, input, contract="S0", enable_pdl=None):
        return None

    _define(name, f"(Tensor input, {arguments}) -> Tensor", (), functional, fake)
    _define(f"{name}_out", f"(Tensor(a!) out, Tensor input, {arguments}) -> ()", ("out",), mutating, nothing)


def _trace_add_norm(name: str) -> None:
    operator = getattr(torch.ops.numba_kernels, name)

    @torch.compiler.substitute_in_graph(getattr(operators, name))
    def traced(input, residual, weight, eps=1e-6, *, contract="R0W0", enable_pdl=None):
        operator(input, residual, weight, eps, contract, enable_pdl)


def _trace_norm(name: str) -> None:
    functional = getattr(torch.ops.numba_kernels, name)
    mutating = getattr(torch.ops.numba_kernels, f"{name}_out")

    @torch.compiler.substitute_in_graph(getattr(operators, name))
    def traced(input, weight, eps=1e-6, out=None, *, contract="W0", enable_pdl=None):
        if out is None:
            return functional(input, weight, eps, contract, enable_pdl)
        mutating(out, input, weight, eps, contract, enable_pdl)
        return out


def _trace_gated(name: str) -> None:
    functional = getattr(torch.ops.numba_kernels, name)
    mutating = getattr(torch.ops.numba_kernels, f"{name}_out")

    @torch.compiler.substitute_in_graph(getattr(operators, name))
    def traced(input, out=None, *, contract="S0", enable_pdl=None):
        if out is None:
            return functional(input, contract, enable_pdl)
        mutating(out, input, contract, enable_pdl)
        return out


for _name in ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm"):
    _define_add_norm(_name, getattr(operators, _name))
    _trace_add_norm(_name)
for _name in ("rmsnorm", "gemma_rmsnorm"):
    _define_norm(_name, getattr(operators, _name))
    _trace_norm(_name)
for _name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
    _define_gated(_name, getattr(operators, _name))
    _trace_gated(_name)

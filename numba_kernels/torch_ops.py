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
from functools import partial

import torch

from . import arguments as check
from . import operators
from .arrays import CPU, Array, format_of

NAMESPACE = "numba_kernels"
TRACED: dict[str, Callable] = {}  # the public functions as calls of the operators; forward only, as they are


def _define(name: str, schema: str, mutates: tuple[str, ...], run: Callable, fake: Callable) -> None:
    operator = torch.library.custom_op(f"{NAMESPACE}::{name}", run, mutates_args=mutates, schema=schema)
    operator.register_fake(fake)


def _seen(name: str, tensor: torch.Tensor) -> Array:
    """A tensor without memory, as the checks see it."""
    device = tensor.get_device() if tensor.is_cuda else CPU
    return Array(name, 0, tuple(tensor.shape), tensor.stride(), format_of(name, tensor.dtype), device, 0, False, tensor)


def _check(input: torch.Tensor, weight: torch.Tensor | None = None, **like_input: torch.Tensor) -> None:
    """What can be checked of tensors without memory: dtypes, shapes and devices."""
    seen = _seen("input", input)
    others = [_seen(name, tensor) for name, tensor in like_input.items()]
    for other in others:
        check.check_same(other, seen)
    if weight is not None:
        others.append(_seen("weight", weight))
        check.check_weight(others[-1], seen)
    check.check_device([seen, *others])


def _define_add_norm(name: str, run: Callable) -> None:
    arguments = "Tensor weight, float eps=1e-6, str contract='R0W0', bool? enable_pdl=None"

    def mutating(input, residual, weight, eps=1e-6, contract="R0W0", enable_pdl=None):
        run(input, residual, weight, eps, contract=contract, enable_pdl=enable_pdl)

    def functional(input, residual, weight, eps=1e-6, contract="R0W0", enable_pdl=None):
        output, new_residual = input.clone(), residual.clone()
        run(output, new_residual, weight, eps, contract=contract, enable_pdl=enable_pdl)
        return output, new_residual

    def like_both(input, residual, weight, eps=1e-6, contract="R0W0", enable_pdl=None):
        _check(input, weight, residual=residual)
        return torch.empty_like(input), torch.empty_like(residual)

    def nothing(input, residual, weight, eps=1e-6, contract="R0W0", enable_pdl=None):
        _check(input, weight, residual=residual)

    schema = f"(Tensor(a!) input, Tensor(b!) residual, {arguments}) -> ()"
    _define(name, schema, ("input", "residual"), mutating, nothing)
    schema = f"(Tensor input, Tensor residual, {arguments}) -> (Tensor, Tensor)"
    _define(name.replace("fused_", ""), schema, (), functional, like_both)


def _define_norm(name: str, run: Callable) -> None:
    arguments = "Tensor weight, float eps=1e-6, str contract='W0', bool? enable_pdl=None"

    def functional(input, weight, eps=1e-6, contract="W0", enable_pdl=None):
        return run(input, weight, eps, None, contract=contract, enable_pdl=enable_pdl)

    def fake(input, weight, eps=1e-6, contract="W0", enable_pdl=None):
        _check(input, weight)
        return input.new_empty(input.shape)

    def mutating(out, input, weight, eps=1e-6, contract="W0", enable_pdl=None):
        run(input, weight, eps, out, contract=contract, enable_pdl=enable_pdl)

    def nothing(out, input, weight, eps=1e-6, contract="W0", enable_pdl=None):
        _check(input, weight, out=out)

    _define(name, f"(Tensor input, {arguments}) -> Tensor", (), functional, fake)
    _define(f"{name}_out", f"(Tensor(a!) out, Tensor input, {arguments}) -> ()", ("out",), mutating, nothing)


def _define_gated(name: str, run: Callable) -> None:
    arguments = "str contract='S0', bool? enable_pdl=None"

    def functional(input, contract="S0", enable_pdl=None):
        return run(input, None, contract=contract, enable_pdl=enable_pdl)

    def fake(input, contract="S0", enable_pdl=None):
        _check(input)
        return input.new_empty((*input.shape[:-1], check.half_width(input.shape[-1])))

    def mutating(out, input, contract="S0", enable_pdl=None):
        run(input, out, contract=contract, enable_pdl=enable_pdl)

    def nothing(out, input, contract="S0", enable_pdl=None):
        _check(input[..., : check.half_width(input.shape[-1])], out=out)

    _define(name, f"(Tensor input, {arguments}) -> Tensor", (), functional, fake)
    _define(f"{name}_out", f"(Tensor(a!) out, Tensor input, {arguments}) -> ()", ("out",), mutating, nothing)


def _substitute(name: str, traced: Callable) -> None:
    TRACED[name] = traced
    torch.compiler.substitute_in_graph(getattr(operators, name))(traced)


def _trace_add_norm(name: str) -> None:
    operator = getattr(torch.ops.numba_kernels, name)

    def traced(input, residual, weight, eps=1e-6, *, contract="R0W0", enable_pdl=None):
        operator(input, residual, weight.detach(), eps, contract, enable_pdl)

    _substitute(name, traced)


def _trace_norm(name: str) -> None:
    functional = getattr(torch.ops.numba_kernels, name)
    mutating = getattr(torch.ops.numba_kernels, f"{name}_out")

    def traced(input, weight, eps=1e-6, out=None, *, contract="W0", enable_pdl=None):
        if out is None:
            return functional(input.detach(), weight.detach(), eps, contract, enable_pdl)
        mutating(out, input if input is out else input.detach(), weight.detach(), eps, contract, enable_pdl)
        return out

    _substitute(name, traced)


def _trace_gated(name: str) -> None:
    functional = getattr(torch.ops.numba_kernels, name)
    mutating = getattr(torch.ops.numba_kernels, f"{name}_out")

    def traced(input, out=None, *, contract="S0", enable_pdl=None):
        if out is None:
            return functional(input.detach(), contract, enable_pdl)
        mutating(out, input.detach(), contract, enable_pdl)
        return out

    _substitute(name, traced)


for _name, _bias in (("fused_add_rmsnorm", 0.0), ("gemma_fused_add_rmsnorm", 1.0)):
    _define_add_norm(_name, partial(operators.add_norm, weight_bias=_bias, direct=True))
    _trace_add_norm(_name)
for _name, _bias in (("rmsnorm", 0.0), ("gemma_rmsnorm", 1.0)):
    _define_norm(_name, partial(operators.norm, weight_bias=_bias, direct=True))
    _trace_norm(_name)
for _activation in ("silu", "gelu", "gelu_tanh"):
    _define_gated(f"{_activation}_and_mul", partial(operators.gated, activation=_activation, direct=True))
    _trace_gated(f"{_activation}_and_mul")

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
``silu_and_mul_out`` (and its siblings)   ``silu_and_mul`` (and its siblings)
========================================= ===============================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .declarations import OPERATORS, Number, Operator
from .runtime import arguments as check
from .runtime import dispatch
from .runtime.arrays import CPU, Array, format_of
from .runtime.calls import make_call
from .runtime.source import make_function, parameter_list

NAMESPACE = "numba_kernels"


def names(operator: Operator) -> tuple[str, str]:
    """The names of the mutating and of the functional form."""
    if operator.returns_out:
        return f"{operator.name}_out", operator.name
    return operator.name, operator.name.replace("fused_", "")


def schema(operator: Operator, *, mutating: bool) -> str:
    """The schema of one form: ``out`` first where it has one, every argument by position, the public function's defaults."""
    given = {t.name: f"Tensor {t.name}" for t in operator.tensors}
    results = "Tensor" if operator.returns_out else f"({', '.join('Tensor' for _ in operator.written)})"
    if mutating:
        given = {"out": "Tensor out", **given} if operator.returns_out else given
        given |= {name: f"Tensor({letter}!) {name}" for name, letter in zip(operator.written, "abc", strict=False)}
        results = "()"
    kinds = {p.name: "float" if isinstance(p, Number) else "bool" for p in operator.parameters}
    kinds |= {"contract": "str", "enable_pdl": "bool?"}
    options = [f"{kind} {name}={operator.default(name)!r}" for name, kind in kinds.items()]
    return f"({', '.join([*given.values(), *options])}) -> {results}"


def define(operator: Operator) -> None:
    """Both forms of ``operator``, and the public function as a call of them."""
    mutating, functional = names(operator)
    run = make_call(operator, direct=True)
    own_run = run if not operator.returns_out else _mutating(operator, run)
    _define(operator, mutating, own_run, operator.written)
    _define(operator, functional, _functional(operator, run), ())
    dispatch.TRACED[operator.name] = _traced(operator)


def _define(operator: Operator, name: str, run: Callable[..., Any], mutates: tuple[str, ...]) -> None:
    text = schema(operator, mutating=bool(mutates))
    defined = torch.library.custom_op(f"{NAMESPACE}::{name}", run, mutates_args=mutates, schema=text)

    def fake(*args: Any, **kwargs: Any) -> Any:
        """Checks what has no memory, and the functional form's results."""
        order = [n for n in operator.arguments if n != "out"]
        named = dict(zip(["out", *order] if operator.returns_out and mutates else order, args, strict=False)) | kwargs
        results = _results(operator, named)
        return None if mutates else results

    defined.register_fake(fake)


def _mutating(operator: Operator, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with ``out`` first, returning nothing."""
    name = f"{operator.name}_out"
    parameters = parameter_list(operator.signature, positional=True, first=("out",))
    return make_function(name, [f"def {name}({parameters}):", f"    run({', '.join(operator.arguments)})"], run=run)


def _functional(operator: Operator, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` into new tensors: the output's, or copies of what it writes."""
    name = f"functional_{operator.name}"
    if operator.returns_out:
        parameters = parameter_list(operator.signature, positional=True, without=("out",))
        passed = ", ".join("None" if a == "out" else a for a in operator.arguments)
        return make_function(name, [f"def {name}({parameters}):", f"    return run({passed})"], run=run)
    written = ", ".join(operator.written)
    lines = [
        f"def {name}({parameter_list(operator.signature, positional=True)}):",
        f"    {written} = {', '.join(f'{a}.clone()' for a in operator.written)}",
        f"    run({', '.join(operator.arguments)})",
        f"    return {written}",
    ]
    return make_function(name, lines, run=run)


def _traced(operator: Operator) -> Callable[..., Any]:
    """The public function as a call of the operators; forward only, so what is read is detached."""
    mutating, functional = (getattr(torch.ops.numba_kernels, name) for name in names(operator))
    name = f"traced_{operator.name}"
    head = f"def {name}({parameter_list(operator.signature)}):"
    read = {t.name for t in operator.tensors if t.name not in operator.written}
    values = {a: f"{a}.detach()" if a in read else a for a in operator.arguments if a != "out"}
    if not operator.returns_out:
        return make_function(name, [head, f"    mutating({', '.join(values.values())})"], mutating=mutating)
    fresh = ", ".join(values.values())
    if not operator.halves_input:
        values["input"] = "input if input is out else input.detach()"
    lines = [
        head,
        "    if out is None:",
        f"        return functional({fresh})",
        f"    mutating(out, {', '.join(values.values())})",
        "    return out",
    ]
    return make_function(name, lines, mutating=mutating, functional=functional)


def _seen(name: str, tensor: torch.Tensor) -> Array:
    """A tensor without memory, as the checks see it."""
    device = tensor.get_device() if tensor.is_cuda else CPU
    return Array(name, 0, tuple(tensor.shape), tensor.stride(), format_of(name, tensor.dtype), device, 0, False, tensor)


def _results(operator: Operator, named: dict[str, Any]) -> Any:
    """New tensors like the results, after what can be checked of tensors without memory: dtypes, shapes and devices."""
    arrays = {t.name: _seen(t.name, named[t.name]) for t in operator.tensors}
    check.check_tensors(operator, arrays)
    shape = check.output_shape(operator, arrays["input"])
    if "out" in named:
        out = _seen("out", named["out"])
        check.check_device({"input": arrays["input"], "out": out})
        check.check_same(out, arrays["input"], shape)
    if operator.returns_out:
        return named["input"].new_empty(shape)
    return tuple(torch.empty_like(named[name]) for name in operator.written)


for _operator in OPERATORS.values():
    define(_operator)
dispatch.under_dynamo = torch.compiler.is_dynamo_compiling

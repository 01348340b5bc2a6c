"""Calls in which PyTorch has a part: what its dispatcher must see, and what its autograd must be told.

Under ``torch.export``, ``make_fx``, ``FlopCounterMode`` and their like, and for tensors that are no memory of their own (fake
tensors, a ``DTensor``), an operator must be seen, not a kernel at work. torch is looked for only among what is imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

TRACED: dict[str, Callable[..., Any]] = {}  # the public functions as calls of torch.ops.numba_kernels: torch_ops.py fills it
_REGISTER: list[Callable[[], object]] = []


def under_dynamo() -> bool:
    """Whether TorchDynamo is reading the caller. torch_ops.py, at the first call after torch's import at the latest, puts
    ``torch.compiler.is_dynamo_compiling`` in its place.
    """
    if _torch() is not None:
        for register in _REGISTER:  # threads that come here together wait for one import
            register()
    return False


def register_by(register: Callable[[], object]) -> None:
    """``register`` defines ``torch.ops.numba_kernels``, when a call finds torch imported."""
    _REGISTER[:] = [register]


def _torch() -> Any:
    """torch, where the caller has imported it, or None."""
    return sys.modules.get("torch")


def _tensors(values: tuple[Any, ...]) -> tuple[Any, ...]:
    torch = _torch()
    return tuple(value for value in values if isinstance(value, torch.Tensor)) if torch else ()


def modes() -> Callable[[], int]:
    """torch's function that counts the dispatch modes at work."""
    return _torch()._C._len_torch_dispatch_stack


def wants(values: tuple[Any, ...]) -> bool:
    """Whether the dispatcher must see a call with these arguments."""
    tensors = _tensors(values)
    if not tensors:
        return False
    core = _torch()._C
    if core._len_torch_dispatch_stack() or core._get_tracing_state() is not None:
        return True
    return any(core._dispatch_keys(tensor).has(core.DispatchKey.Python) for tensor in tensors)


def records(value: Any) -> bool:
    """Whether autograd would have to record what is written to ``value``."""
    return any(tensor.requires_grad and _torch().is_grad_enabled() for tensor in _tensors((value,)))


def is_closed(value: Any) -> bool:
    """Whether ``value`` was made in inference mode, which has ended: PyTorch's own operators would not write it."""
    return any(tensor.is_inference() and not _torch().is_inference_mode_enabled() for tensor in _tensors((value,)))


def tell_written(values: tuple[Any, ...]) -> None:
    """Tells autograd which tensors were written, so that a backward pass that needs their old values fails."""
    tensors = _tensors(values)
    if tensors:
        _torch().autograd.graph.increment_version(tensors)

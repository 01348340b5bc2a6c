"""One call of a candidate on guarded memory: what it gave back, what it wrote where nothing may be.

Imports torch, `reference` and this package's cases, buffers and dtypes.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from difftest import buffers
from difftest.cases import Case
from difftest.dtypes import bits
from reference.contracts import Contract
from reference.operators import Operator
from reference.providers import Refused

Tensors = Mapping[str, torch.Tensor]


class BadOutput(Exception):
    """What a candidate returned is not its output; the message says what is wrong with it."""


@dataclass(slots=True)
class Called:
    """What a call came to: `outputs` by name, copies; empty when it raised or returned something else than its output.

    `faults`: one sentence for what it raised, for a bad output, for each buffer with stray writes. `refused`: it raised
    `Refused`, so the only fault is that it does not take such arguments.
    """

    outputs: Tensors = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    refused: bool = False


def call_guarded(case: Case, function: Callable, contract: Contract, given: Mapping[str, buffers.Buffer]) -> Called:
    """Calls the candidate on the buffers given, and on a poisoned `out` of its own where the case hands one over."""
    op, device = case.operator, torch.device(case.device)
    out = buffers.allocate_output(case, device) if case.out_given and takes_out(function) else None
    called = Called()
    try:
        with buffers.poisoned_allocations():
            called.outputs = _outputs(op, function, given, out, contract)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except BadOutput as error:
        called.faults.append(str(error))
    except Exception as error:  # a candidate may raise anything: that is a finding, not a failure of the tester
        called.faults.append(f"raised {type(error).__name__}: {error}{_where(error)}")
        called.refused = isinstance(error, Refused)
    for buffer in (*given.values(), *([out] if out else [])):
        stray = buffer.stray_writes(writable=buffer is out or buffer.name in op.mutated)
        if stray:
            called.faults.append(stray)
    return called


def _where(error: BaseException) -> str:
    """The last place outside this package and installed libraries that an error came through, or nothing."""
    own = str(Path(__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "site-packages" not in frame.filename and not frame.filename.startswith((own, "<")):
            return f" ({Path(frame.filename).name}:{frame.lineno})"
    return ""


def takes_out(function: Callable) -> bool:
    """Whether the function has a parameter `out`, as FlashInfer's norms and activations do."""
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def call(op: Operator, function: Callable, tensors: Tensors, contract: Contract, **more: Any) -> Any:
    """Calls a function of the operator's signature on the tensors."""
    arguments = [tensors[name] for name in op.inputs]
    if op.family != "gated":
        arguments.append(contract.eps)  # type: ignore[arg-type]
    return function(*arguments, **more)


def _outputs(
    op: Operator,
    function: Callable,
    given: Mapping[str, buffers.Buffer],
    out: buffers.Buffer | None,
    contract: Contract,
) -> Tensors:
    views = {name: buffer.view for name, buffer in given.items()}
    returned = call(op, function, views, contract, **({"out": out.view} if out else {}))
    if op.mutated:
        untouched = all(torch.equal(bits(view), bits(given[name].snapshot())) for name, view in views.items())
        if returned is not None and untouched and views["input"].any():
            raise BadOutput(f"returned a {type(returned).__name__} and overwrote nothing; {op.name} works in place")
        return {"output": views["input"].clone(), "residual": views["residual"].clone()}
    output = out.view if out else returned
    rows = views["input"]
    shape = (*rows.shape[:-1], rows.shape[-1] // 2) if op.family == "gated" else tuple(rows.shape)
    if not isinstance(output, torch.Tensor):
        raise BadOutput(f"returned a {type(output).__name__}, not a tensor")
    if tuple(output.shape) != shape:
        raise BadOutput(f"output has shape {tuple(output.shape)}, not {shape}")
    if output.dtype != rows.dtype:
        raise BadOutput(f"output has dtype {output.dtype}, not {rows.dtype}")
    if output.device != rows.device:
        raise BadOutput(f"output is on {output.device}, not {rows.device}")
    for name, view in views.items():
        if buffers.overlap(output, view):
            raise BadOutput(f"output shares memory with {name}")
    return {"output": output.clone()}

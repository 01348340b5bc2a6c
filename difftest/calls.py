"""One call of a candidate on guarded memory: what it gave back, what it wrote where nothing may be.

Imports torch, `reference` and this package's cases, buffers and dtypes.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from difftest import buffers
from difftest.cases import Case
from difftest.dtypes import DTYPES, bits
from reference.contracts import Contract
from reference.operators import Operator
from reference.providers import Refused

Tensors = Mapping[str, torch.Tensor]


class BadOutput(Exception):
    """What a candidate returned is not its output; the message says what is wrong with it."""


@dataclass(slots=True)
class Called:
    """What a call came to: `outputs` by name, copies; empty when it raised or returned something else than its output.

    `faults`: one sentence for what it raised, for a bad output, for each tensor that is no longer what it was handed, for
    each buffer with stray writes. `refused`: it raised `Refused`, so the only fault is that it does not take such
    arguments. `returned`: the new tensor that it returned, in memory of its own choice.
    """

    outputs: Tensors = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    refused: bool = False
    returned: torch.Tensor | None = None


def call_guarded(case: Case, function: Callable, contract: Contract, given: Mapping[str, buffers.Buffer]) -> Called:
    """Calls the candidate on the buffers given, and on a poisoned `out` of its own where the case hands one over.

    What belongs in those buffers is read from their memory, whatever became of the tensors that the candidate was handed.
    """
    op, device = case.operator, torch.device(case.device)
    out = buffers.allocate_output(case, device) if case.out_given and takes_out(function) else None
    called = Called()
    handed = {name: buffer.hand_over() for name, buffer in given.items()}
    handed_out = {"out": out.hand_over()} if out else {}
    try:
        with buffers.poisoned_allocations():
            returned = call(op, function, handed, contract, **handed_out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        called.faults += _rebound(op, given, handed)
        if out and (became := out.rebound(handed_out["out"])):
            called.faults.append(f"out {became}; the result belongs in the memory that it came with")
        _take(called, case, given, out, returned)
    except BadOutput as error:
        called.faults.append(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a candidate may raise anything, SystemExit too: a finding, not the tester's end
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
    """Calls a function of the operator's signature on the tensors. A coroutine is closed: nobody will await it."""
    arguments = [tensors[name] for name in op.inputs]
    if op.family != "gated":
        arguments.append(contract.eps)  # type: ignore[arg-type]
    with no_exit():
        returned = function(*arguments, **more)
    if inspect.iscoroutine(returned):
        returned.close()
    return returned


@contextmanager
def no_exit() -> Iterator[None]:
    """While it lasts, `os._exit` raises SystemExit in this process, which would otherwise end with a status of a stranger's
    choosing and no verdict. In a process that was forked meanwhile it is what it was."""
    leave, own = os._exit, os.getpid()

    def stay(status: int) -> NoReturn:
        if os.getpid() != own:
            leave(status)
        raise SystemExit(status)

    os._exit = stay
    try:
        yield
    finally:
        os._exit = leave


def kind(returned: Any) -> str:
    """What something that is no output is, for a sentence."""
    return "None" if returned is None else type(returned).__name__


def differing(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Mask: other bits, except NaN for NaN. Both of one shape and dtype."""
    one, other = one.contiguous(), other.contiguous()
    return (bits(one) != bits(other)) & ~(one.isnan() & other.isnan())


def _rebound(op: Operator, given: Mapping[str, buffers.Buffer], handed: Tensors) -> list[str]:
    found = {name: buffer.rebound(handed[name]) for name, buffer in given.items()}
    rule = {name: "works in place" if name in op.mutated else f"leaves its {name} as it is" for name in given}
    return [f"{name} {became}; {op.name} {rule[name]}" for name, became in found.items() if became]


def _take(called: Called, case: Case, given: Mapping[str, buffers.Buffer], out: buffers.Buffer | None, returned: Any) -> None:
    """Copies the outputs, from the buffers or from what was returned. BadOutput where there are none."""
    op = case.operator
    views = {name: buffer.view for name, buffer in given.items()}
    if op.mutated:
        untouched = all(torch.equal(bits(view), bits(given[name].snapshot())) for name, view in views.items())
        if returned is not None and untouched and views["input"].any():
            raise BadOutput(f"returned {kind(returned)} and overwrote nothing; {op.name} works in place")
        called.outputs = {"output": views["input"].clone(), "residual": views["residual"].clone()}
        return
    if out:
        called.outputs = {"output": out.view.clone()}
        _check_beside(out.view, returned)
        return
    shape, dtype, device = (*case.lead, case.width), DTYPES[case.dtype].storage, views["input"].device
    if not isinstance(returned, torch.Tensor):
        raise BadOutput(f"returned {kind(returned)}, not a tensor")
    if tuple(returned.shape) != shape:
        raise BadOutput(f"output has shape {tuple(returned.shape)}, not {shape}")
    if returned.dtype != dtype:
        raise BadOutput(f"output has dtype {returned.dtype}, not {dtype}")
    if returned.device != device:
        raise BadOutput(f"output is on {returned.device}, not {device}")
    if returned.layout is not torch.strided:
        raise BadOutput(f"output has layout {returned.layout}, not {torch.strided}")
    for name, view in views.items():
        if buffers.overlap(returned, view):
            raise BadOutput(f"output shares memory with {name}")
    called.returned = returned.detach()
    called.outputs = {"output": called.returned.clone()}


def _check_beside(output: torch.Tensor, returned: Any) -> None:
    """BadOutput for a tensor that was returned beside `out`, in other memory, and holds something else."""
    if not isinstance(returned, torch.Tensor):
        return
    returned = returned.detach()
    found, right = ((t.layout, t.device, tuple(t.shape), t.dtype) for t in (returned, output))
    if found[:2] == right[:2] and buffers.overlap(returned, output):
        return
    if found != right:
        raise BadOutput(f"was given out and returned another tensor, {returned.dtype} {tuple(returned.shape)}")
    count = int(differing(returned, output).sum())
    if count:
        differs = f"which differs from it in {count} of {output.numel()} elements"
        raise BadOutput(f"was given out and returned another tensor, {differs}")

"""The one way to call a candidate: on guarded memory; what it gave back, and what it wrote where nothing may be written."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from difftest.cases.case import OUT_GIVEN, OUT_INPUT, Case
from difftest.interrupts import no_exit
from difftest.run import buffers
from difftest.run.buffers import Buffer
from difftest.wording import in_a_line
from reference.contracts import Contract
from reference.formats import bits
from reference.operators import Operator
from reference.providers import Refused

Tensors = Mapping[str, torch.Tensor]


class BadOutput(Exception):
    """What a candidate returned is not its output; the message says what is wrong with it."""


@dataclass(slots=True)
class Called:
    """What a call came to: `outputs` by name, copies; empty when it raised or returned something else than its output.

    `faults`: one sentence for what it raised, for a bad output, for each tensor that is no longer what it was handed, for
    each buffer with stray writes. `failure`: the one that leaves nothing to look at, without the place that an error came
    through; empty where there is none. `error`: what it raised. `returned`: the new tensor that it returned, in memory of its
    own choice.
    """

    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    failure: str = ""
    error: BaseException | None = None
    returned: torch.Tensor | None = None

    @property
    def refused(self) -> bool:
        """Whether the only fault is that it does not take such arguments."""
        return isinstance(self.error, Refused)


def call(case: Case, function: Callable, inputs: Tensors) -> Called:
    """Calls the function on copies of the inputs, in the case's layout on its device, and on a poisoned `out`, or its input as
    `out`, where the case hands one over and the function takes one.

    What belongs in those buffers is read from their memory, whatever became of the tensors that the candidate was handed.
    Whatever the function raises, short of Ctrl-C, is part of what the call came to.
    """
    op, device = case.operator, torch.device(case.device)
    given = buffers.allocate_inputs(case, inputs)
    out = _out(case, given) if takes_out(function) else None
    called = Called()
    handed = {name: buffer.hand_over() for name, buffer in given.items()}
    handed_out = {"out": handed.get(out.name, out.hand_over())} if out else {}
    try:
        with buffers.poisoned_allocations():
            returned = invoke(op, function, handed, case.contract, **handed_out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # a kernel's fault shows here, not in what follows
        called.faults += _rebound(op, {name: buffer for name, buffer in given.items() if buffer is not out}, handed)
        called.failure = called.faults[0] if called.faults and op.mutated else ""
        if out and (became := out.rebound(handed_out["out"])):
            called.faults.append(f"out {became}; the result belongs in the memory that it came with")
        _take(called, case, given, out, returned)
    except BadOutput as error:
        called.failure = str(error)
        called.faults.append(called.failure)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a candidate may raise anything, SystemExit too: a finding, not the tester's end
        called.failure = f"raised {in_a_line(error)}"
        called.faults.append(called.failure + _where(error))
        called.error = error.with_traceback(None)
    for buffer in {id(buffer): buffer for buffer in (*given.values(), *([out] if out else []))}.values():
        stray = buffer.stray_writes(writable=buffer is out or buffer.name in op.mutated)
        if stray:
            called.faults.append(stray)
    return called


def _out(case: Case, given: Mapping[str, Buffer]) -> Buffer | None:
    """The memory that the case hands over as `out`."""
    if case.out == OUT_INPUT:
        return given[case.operator.rows[0]]
    return buffers.allocate_output(case) if case.out == OUT_GIVEN else None


def invoke(op: Operator, function: Callable, tensors: Tensors, contract: Contract, **more: Any) -> Any:
    """The bare call: the tensors, then the contract's parameters, by position. A coroutine is closed: it is never awaited."""
    with no_exit():
        returned = function(*op.arguments(tensors, contract), **more)
    if inspect.iscoroutine(returned):
        returned.close()
    return returned


def collect(op: Operator, tensors: Tensors, returned: Any) -> dict[str, torch.Tensor]:
    """Output name -> tensor, from what a call on `tensors` returned, or from those that it wrote. No copies, no checks."""
    if not op.mutated:
        return {"output": returned}
    if returned is None:
        return {output: tensors[name] for output, name in op.lands_in.items()}
    return dict(zip(op.outputs, returned, strict=False))


def takes_out(function: Callable) -> bool:
    """Whether the function has a parameter `out`, as FlashInfer's norms and activations do."""
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def differing(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Mask: other bits, except NaN for NaN. Both of one shape and dtype."""
    one, other = one.contiguous(), other.contiguous()
    return (bits(one) != bits(other)) & ~(one.isnan() & other.isnan())


def _where(error: BaseException) -> str:
    """The last place outside this package and installed libraries that an error came through, or nothing."""
    own = str(Path(__file__).parent.parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "site-packages" not in frame.filename and not frame.filename.startswith((own, "<")):
            return f" ({Path(frame.filename).name}:{frame.lineno})"
    return ""


def _kind(returned: Any) -> str:
    """What something that is no output is, for a sentence."""
    return "None" if returned is None else type(returned).__name__


def _rebound(op: Operator, given: Mapping[str, Buffer], handed: Tensors) -> list[str]:
    found = {name: buffer.rebound(handed[name]) for name, buffer in given.items()}
    rule = {name: "works in place" if name in op.mutated else f"leaves its {name} as it is" for name in given}
    return [f"{name} {became}; {op.name} {rule[name]}" for name, became in found.items() if became]


def _take(called: Called, case: Case, given: Mapping[str, Buffer], out: Buffer | None, returned: Any) -> None:
    """Copies the outputs, from the buffers or from what was returned. BadOutput where there are none."""
    op = case.operator
    views = {name: buffer.view for name, buffer in given.items()}
    if op.mutated:
        untouched = all(torch.equal(bits(view), bits(given[name].snapshot())) for name, view in views.items())
        if returned is not None and untouched and views[op.mutated[0]].any():
            raise BadOutput(f"returned {_kind(returned)} and overwrote nothing; {op.name} works in place")
        called.outputs = {name: view.clone() for name, view in collect(op, views, None).items()}
        return
    if out:
        called.outputs = {"output": out.view.clone()}
        _check_beside(out.view, returned)
        return
    dtype, device = case.format.torch, next(iter(views.values())).device
    if not isinstance(returned, torch.Tensor):
        raise BadOutput(f"returned {_kind(returned)}, not a tensor")
    if tuple(returned.shape) != case.shape:
        raise BadOutput(f"output has shape {tuple(returned.shape)}, not {case.shape}")
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

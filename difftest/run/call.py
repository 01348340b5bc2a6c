"""The one way to call a candidate: on guarded memory; what it gave back, and what it wrote where nothing may be written."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from difftest.cases.case import OUT_GIVEN, OUT_INPUT, Case
from difftest.run import buffers, memory, perform
from difftest.run.buffers import Buffer
from difftest.run.perform import Kept, Performed, Performer, differing, takes_out
from difftest.wording import counted
from reference.formats import bits
from reference.operators import Operator

Tensors = Mapping[str, torch.Tensor]
LATER = 0.02  # seconds that a thread which a call leaves is waited for, to see what it writes


@dataclass(slots=True)
class Called:
    """What a call came to: `outputs` by name, copies; empty when it raised or returned something else than its output.

    `faults`: one sentence for what it raised, for a bad output, for each tensor that is no longer what it was handed, for
    each buffer with stray writes. `failure`: the one that leaves nothing to look at, without the place that an error came
    through; empty where there is none. `raised`: that is what it raised, or the end of its process. `refused`: why it does
    not take such arguments, where that is the only fault. `returned`: the new
    tensor that it returned, in memory of its own choice. `notes`: what it did beside computing, where that is not a fault.
    """

    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    failure: str = ""
    raised: bool = False
    refused: str = ""
    returned: Kept | None = None
    notes: list[str] = field(default_factory=list)


def call(case: Case, function: Callable | Performer, inputs: Tensors) -> Called:
    """Calls the function on copies of the inputs, in the case's layout on its device, and on a poisoned `out`, or its input as
    `out`, where the case hands one over and the function takes one.

    What belongs in those buffers is read from their memory, whatever became of the tensors that the candidate was handed, and
    is copied before anything looks at it. Whatever the function raises, short of Ctrl-C, is part of what the call came to, and
    so is the end of the process that a `Performer` has it in.
    """
    take = function.memory(case) if isinstance(function, Performer) else memory.own(torch.device(case.device))
    given, out = _placed(case, function, inputs, take)
    if isinstance(function, Performer):
        done = function.perform(case, given, out)
    else:
        done = perform.perform(function, perform.Call.of(case, given, out))
    return _came_to(case, done, given, out)


def call_all(cases: Sequence[Case], function: Callable | Performer, inputs: Sequence[Tensors]) -> list[Called]:
    """Each of several calls, as `call`; in one turn where the function is elsewhere, as long as nothing becomes of any. What was
    returned is then not kept."""
    each = list(zip(cases, inputs, strict=True))
    if isinstance(function, Performer):
        take = function.memory(*cases)
        placed = [(case, *_placed(case, function, values, take)) for case, values in each]
        all_done = function.perform_all(placed)
        if all_done is not None:
            return [_came_to(case, done, given, out) for done, (case, given, out) in zip(all_done, placed, strict=True)]
    return [call(case, function, values) for case, values in each]


def _placed(
    case: Case, function: Callable | Performer, inputs: Tensors, take: memory.Take
) -> tuple[dict[str, Buffer], Buffer | None]:
    """The call's buffers, filled."""
    given = buffers.allocate_inputs(case, inputs, take)
    return given, _out(case, given, take) if takes_out(function) else None


def _came_to(case: Case, done: Performed, given: Mapping[str, Buffer], out: Buffer | None) -> Called:
    """What a call that was made came to, its buffers looked at."""
    op = case.operator
    called = Called({}, list(done.faults), done.failure, done.raised, done.refused, done.kept, list(done.notes))
    if done.complete:
        _take(called, op, done, given, out)
    if done.threads:
        _look_again(called, op, given, out)
    for buffer in {id(buffer): buffer for buffer in (*given.values(), *([out] if out else []))}.values():
        stray = buffer.stray_writes(writable=buffer is out or buffer.name in op.mutated)
        if stray:
            called.faults.append(stray)
    return called


def _out(case: Case, given: Mapping[str, Buffer], take: memory.Take) -> Buffer | None:
    """The memory that the case hands over as `out`."""
    if case.out == OUT_INPUT:
        return given[case.operator.rows[0]]
    return buffers.allocate_output(case, take) if case.out == OUT_GIVEN else None


def collect(op: Operator, tensors: Tensors, returned: Any) -> dict[str, torch.Tensor]:
    """Output name -> tensor, from what a call on `tensors` returned, or from those that it wrote. No copies, no checks."""
    if not op.mutated:
        return {"output": returned}
    if returned is None:
        return {output: tensors[name] for output, name in op.lands_in.items()}
    return dict(zip(op.outputs, returned, strict=False))


def _take(called: Called, op: Operator, done: Performed, given: Mapping[str, Buffer], out: Buffer | None) -> None:
    """Copies the outputs, from the buffers or from what was returned. Where an operator works in place, nothing that was
    written and something that was returned is no output."""
    called.outputs = _written(op, given, out)
    if not op.mutated:
        called.outputs = called.outputs or {"output": done.output}  # type: ignore[dict-item]
        return
    untouched = all(torch.equal(bits(buffer.view), bits(buffer.snapshot())) for buffer in given.values())
    if done.kind != "None" and untouched and given[op.mutated[0]].view.any():
        called.outputs = {}
        called.failure = f"returned {done.kind} and overwrote nothing; {op.name} works in place"
        called.faults.append(called.failure)


def _written(op: Operator, given: Mapping[str, Buffer], out: Buffer | None) -> dict[str, torch.Tensor]:
    """Copies of the outputs that are in buffers."""
    if out:
        return {"output": out.view.clone()}
    return {name: given[buffer].view.clone() for name, buffer in op.lands_in.items()} if op.mutated else {}


def _look_again(called: Called, op: Operator, given: Mapping[str, Buffer], out: Buffer | None) -> None:
    """A fault for each output that a thread still writes to, after the call is over."""
    time.sleep(LATER)
    later = _written(op, given, out)
    if called.returned and "output" in called.outputs:
        later["output"] = called.returned.now()
    for name, tensor in later.items():
        count = int(differing(tensor, called.outputs[name]).sum()) if name in called.outputs else 0
        if count:
            called.faults.append(f"{name}: {counted(count, 'element')} changed after the call was over")

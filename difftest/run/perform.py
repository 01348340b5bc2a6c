"""A call in the process that holds the function: made, and looked at for what that process alone can see."""

from __future__ import annotations

import inspect
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from difftest.cases.case import OUT_INPUT, Case
from difftest.interrupts import no_exit
from difftest.run import buffers
from difftest.run.buffers import Buffer, Placed
from difftest.wording import in_a_line
from reference.contracts import Contract
from reference.formats import bits
from reference.operators import Operator
from reference.providers import Refused


class BadOutput(Exception):
    """What a candidate returned is not its output; the message says what is wrong with it."""


class Kept(ABC):
    """A tensor that a candidate returned, where the candidate may still write to it."""

    @property
    @abstractmethod
    def span(self) -> tuple[str, int, int]:
        """Its device, its first byte, the byte after its last, as its process counts them."""

    @abstractmethod
    def now(self) -> torch.Tensor:
        """What it holds now."""


@dataclass(slots=True)
class Here(Kept):
    """One in this process."""

    tensor: torch.Tensor

    @property
    def span(self) -> tuple[str, int, int]:
        """As of `Kept`."""
        return buffers.span(self.tensor)

    def now(self) -> torch.Tensor:
        """As of `Kept`; no copy."""
        return self.tensor


@dataclass(slots=True)
class Performed:
    """What a call came to, as the process that made it sees it.

    `faults`, `failure`, `raised`, `refused`: as of `difftest.run.call.Called`. `complete`: it returned, and nothing was wrong
    with what. `kind`: what was returned, for a sentence. `output`: the call's output, if it was returned and is not in a buffer;
    a copy. `kept`: what that is a copy of, for a look at it later. `notes`: what the function did beside, a sentence each.
    `threads`: it left new ones running.
    """

    faults: list[str] = field(default_factory=list)
    failure: str = ""
    raised: bool = False
    refused: str = ""
    complete: bool = False
    kind: str = "None"
    output: torch.Tensor | None = None
    kept: Kept | None = None
    notes: list[str] = field(default_factory=list)
    threads: bool = False


class Performer(ABC):
    """A function that is called elsewhere: in another process, on memory that both see."""

    @abstractmethod
    def memory(self, *cases: Case) -> buffers.Take:
        """Memory for the buffers of these calls."""

    @abstractmethod
    def perform(self, case: Case, given: Mapping[str, Buffer], out: Buffer | None) -> Performed:
        """Calls the function once on the buffers, which come out of that memory."""

    @abstractmethod
    def perform_all(self, calls: Sequence[tuple[Case, Mapping[str, Buffer], Buffer | None]]) -> list[Performed] | None:
        """Calls the function on each in turn, with one question to where it is, and keeps nothing that is returned. None where a
        call came to anything but its output: then each is to be made by itself, on buffers of its own."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a process is told of a call: the operator, its numbers, the buffers by name, and which of them is `out`."""

    op: Operator
    contract: Contract
    placed: Mapping[str, Placed]
    out: str | None
    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, case: Case, given: Mapping[str, Buffer], out: Buffer | None) -> Call:
        """The case's call on those buffers."""
        placed = {name: buffer.placed() for name, buffer in given.items()}
        if out and case.out != OUT_INPUT:
            placed[out.name] = out.placed()
        return cls(case.operator, case.contract, placed, out.name if out else None, case.shape, case.format.torch)


def perform(
    function: Callable,
    call: Call,
    copy: Callable[[torch.Tensor], torch.Tensor] = torch.clone,
    put_back: Callable[[], list[str]] = list,
) -> Performed:
    """Makes the call; `copy` gives a copy of the output, `put_back` says what else the function changed, ahead of anything that
    could go wrong for it. Whatever the function raises, short of Ctrl-C, is part of what the call came to.
    """
    op = call.op
    done = Performed()
    handed = {name: placed.hand_over() for name, placed in call.placed.items()}
    inputs = {name: handed[name] for name in op.inputs}
    more = {"out": handed[call.out]} if call.out else {}
    try:
        with buffers.poisoned_allocations():
            try:
                returned = invoke(op, function, inputs, call.contract, **more)
            finally:
                done.notes += put_back()
        device = next(iter(handed.values())).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # a kernel's fault shows here, not in what follows
        done.kind = _kind(returned)
        done.faults += _rebound(call, handed)
        done.failure = done.faults[0] if done.faults and op.mutated else ""
        if call.out and (became := call.placed[call.out].became(handed[call.out])):
            done.faults.append(f"out {became}; the result belongs in the memory that it came with")
        with torch._C.DisableTorchFunctionSubclass():  # a subclass has no say in how it is looked at
            _take(done, call, returned, copy)
        done.complete = True
    except BadOutput as error:
        done.failure = str(error)
        done.faults.append(done.failure)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a candidate may raise anything, SystemExit too: a finding, not the tester's end
        done.failure = f"raised {in_a_line(error)}"
        done.faults.append(done.failure + _where(error))
        done.raised, done.refused = True, str(error) if isinstance(error, Refused) else ""
    return done


def invoke(op: Operator, function: Callable, tensors: Mapping[str, torch.Tensor], contract: Contract, **more: Any) -> Any:
    """The bare call: the tensors, then the contract's parameters, by position. A coroutine is closed: it is never awaited."""
    with no_exit():
        returned = function(*op.arguments(tensors, contract), **more)
    if inspect.iscoroutine(returned):
        returned.close()
    return returned


def takes_out(function: Callable | Performer) -> bool:
    """Whether the function has a parameter `out`, as FlashInfer's norms and activations do."""
    try:
        return "out" in inspect.signature(function).parameters  # type: ignore[arg-type]
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


def _rebound(call: Call, handed: Mapping[str, torch.Tensor]) -> list[str]:
    op = call.op
    found = {name: placed.became(handed[name]) for name, placed in call.placed.items() if name != call.out}
    rule = {name: "works in place" if name in op.mutated else f"leaves its {name} as it is" for name in found}
    return [f"{name} {became}; {op.name} {rule[name]}" for name, became in found.items() if became]


def _take(done: Performed, call: Call, returned: Any, copy: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Looks at what was returned, and copies the output. BadOutput where it is no output, or something else than `out` holds."""
    op = call.op
    views = {name: placed.hand_over() for name, placed in call.placed.items()}
    if op.mutated:
        return
    if call.out:
        _check_beside(views[call.out], returned)
        return
    if not isinstance(returned, torch.Tensor):
        raise BadOutput(f"returned {done.kind}, not a tensor")
    if tuple(returned.shape) != call.shape:
        raise BadOutput(f"output has shape {tuple(returned.shape)}, not {call.shape}")
    device = views[op.rows[0]].device
    if returned.dtype != call.dtype:
        raise BadOutput(f"output has dtype {returned.dtype}, not {call.dtype}")
    if returned.device != device:
        raise BadOutput(f"output is on {returned.device}, not {device}")
    if returned.layout is not torch.strided:
        raise BadOutput(f"output has layout {returned.layout}, not {torch.strided}")
    for name, view in views.items():
        if buffers.overlap(returned, view):
            raise BadOutput(f"output shares memory with {name}")
    plain = returned.detach().as_subclass(torch.Tensor)
    done.output = copy(plain)
    done.kept = Here(plain)


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

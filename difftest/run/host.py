"""A candidate's process: it looks the candidate up, calls it on memory that it shares with the tester, and says what happened.

It holds no verdict, no reference's outputs, no expectation. The tester's requests are pickled; the answers are JSON, and nothing
in them is trusted: the tester reads the outputs' bits from the memory, and judges them whatever the answer says.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from difftest.errors import LackingError, UsageError
from difftest.run.buffers import Placed, span
from difftest.run.memory import Opened
from difftest.run.perform import Call, Kept, Performed, perform, takes_out
from difftest.run.state import Watch
from difftest.wording import in_a_line
from reference.contracts import Contract
from reference.operators import operator
from reference.providers import Provider, Unavailable

MOST = 1 << 17  # bytes of a message
LONGEST = 2000  # characters of a sentence
MOST_SENTENCES = 20
SHARE = 0.5  # of the memory that is available, for what a candidate allocates

# Errors that have a meaning for the tester, by name.
ERRORS: Mapping[str, type[Exception]] = {each.__name__: each for each in (UsageError, LackingError, ValueError, Unavailable)}


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor of a call: the allocation's first byte in the shared memory and its elements; the view in it."""

    start: int
    count: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    base: int


@dataclass(frozen=True, slots=True)
class Request:
    """A call to make. `result`: where a new tensor that is returned is copied to. `kept`: the numbers of the tensors returned
    earlier that the tester may still ask for; others are let go of."""

    op: str
    contract: Contract
    places: Mapping[str, Place]
    out: str | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    result: int
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a provider is asked about: a call without its tensors, `reference.providers.protocol.Call`."""

    op: str
    dtype: str
    width: int
    device: str


def serve(channel: socket.socket) -> None:
    """Answers requests until the channel's other end is closed, or what a request does ends this process."""
    own = os.getpid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.disable()  # of a tester that is a test: how a process ends is said elsewhere
    _limit()
    sys.stdin = open(os.devnull)  # noqa: SIM115  lasts as long as the process
    for name, number in (("stdout", 1), ("stderr", 2)):
        setattr(sys, name, open(number, "w", errors="backslashreplace", closefd=False))  # noqa: SIM115
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST)
    served = _Served()
    while True:
        message, files, _, _ = socket.recv_fds(channel, MOST, 1)
        if not message:
            return
        what, *words = pickle.loads(message)
        answer: dict[str, Any]
        try:
            answer = getattr(served, what)(*words, *files)
        except tuple(ERRORS.values()) as error:
            name = next(name for name, each in ERRORS.items() if isinstance(error, each))
            answer = {"error": name, "text": _clipped(str(error))}
        except BaseException as error:  # a candidate's `check` may raise anything
            answer = {"error": "", "text": _clipped(f"raised {in_a_line(error)}")}
        if os.getpid() != own:  # a copy that a call made of this process came back too
            os._exit(0)
        channel.send(json.dumps(answer).encode())


class _Served:
    """What the tester may ask; each method is a request, and gives plain data."""

    def __init__(self) -> None:
        self._provider: Provider | None = None
        self._functions: list[Callable] = []
        self._opened: Opened | None = None
        self._kept: dict[int, torch.Tensor] = {}
        self._calls = 0
        self._watch = Watch()

    def resolve(self, spec: str, option: str) -> dict[str, Any]:
        """Looks the provider up, which for a file imports it."""
        from difftest.providers.resolve import resolve

        found = self._provider = resolve(spec, option)
        changed = [f"its import changed {name}" for name in self._state_after_import()]
        promised = bool(getattr(found, "batch_invariant", False))
        about = {"name": found.name, "in_place": found.in_place, "batch_invariant": promised, "version": found.version()}
        return {**about, "notes": changed[:MOST_SENTENCES]}

    def claims(self, op: str) -> dict[str, Any]:
        """The contract that the provider claims."""
        found = self._asked().claims(op)
        return {"contract": asdict(found) if found else None}

    def check(self, call: Asked) -> dict[str, Any]:
        """Why the call can't run."""
        reason = self._asked().check(call)
        return {"reason": None if reason is None else _clipped(str(reason))}

    def checks(self, calls: Sequence[Asked]) -> dict[str, Any]:
        """The same of several calls."""
        return {"reasons": [self.check(call)["reason"] for call in calls]}

    def function(self, op: str, contract: Contract | None) -> dict[str, Any]:
        """Keeps the function for a contract; its number, and whether it takes `out`."""
        self._functions.append(self._asked().function(op, contract))
        return {"number": len(self._functions) - 1, "takes_out": takes_out(self._functions[-1])}

    def open(self, opening: Any, file: int | None = None) -> dict[str, Any]:
        """Opens the memory that calls are made on."""
        self._opened = Opened(opening, file)
        if file is not None:
            os.close(file)
        return {}

    def call(self, number: int, request: Request) -> dict[str, Any]:
        """Makes a call."""
        assert self._opened
        for each in set(self._kept) - set(request.kept):
            del self._kept[each]
        placed = {name: self._placed(place) for name, place in request.places.items()}
        call = Call(operator(request.op), request.contract, placed, request.out, request.shape, request.dtype)
        opened, count = self._opened, torch.Size(request.shape).numel()

        def copy(output: torch.Tensor) -> torch.Tensor:
            return opened.at(request.result, count, request.dtype).view(request.shape).copy_(output)

        done = perform(self._functions[number], call, copy if count else torch.clone, self._put_back)
        return self._told(done) | {"spoiled": torch.cuda.is_initialized() and _spoiled()}

    def calls(self, number: int, requests: Sequence[Request]) -> dict[str, Any]:
        """Makes several calls of one function; nothing is said of them where that is more than a message holds."""
        told = [self.call(number, request) for request in requests]
        return {"calls": told if len(json.dumps(told)) < MOST else []}

    def look(self, number: int, start: int) -> dict[str, Any]:
        """Copies what a tensor that was returned holds now."""
        assert self._opened
        tensor = self._kept[number]
        if tensor.numel():
            self._opened.at(start, tensor.numel(), tensor.dtype).view(tensor.shape).copy_(tensor)
            if tensor.is_cuda:
                torch.cuda.synchronize()  # the tester reads it on a stream of its own
        return {}

    def _asked(self) -> Provider:
        assert self._provider
        return self._provider

    def _placed(self, place: Place) -> Placed:
        assert self._opened
        return Placed(self._opened.at(place.start, place.count, place.dtype), place.shape, place.strides, place.base)

    def _told(self, done: Performed) -> dict[str, Any]:
        """What the call came to as plain data; the output stays here, under a number."""
        self._calls += 1
        kept: Kept | None = done.kept
        if kept and done.output is not None:
            self._kept[self._calls] = kept.now()
        threads = self._watch.new_threads()
        notes = [*done.notes, *(["left threads running"] if threads else [])]
        return {
            "faults": [_clipped(fault) for fault in done.faults[:MOST_SENTENCES]],
            "failure": _clipped(done.failure),
            "raised": done.raised,
            "refused": _clipped(done.refused),
            "complete": done.complete,
            "kind": _clipped(done.kind),
            "notes": [_clipped(note) for note in notes[:MOST_SENTENCES]],
            "threads": threads,
            "kept": self._calls if kept else None,
            "span": span(kept.now()) if kept else None,
        }

    def _put_back(self) -> list[str]:
        return [f"changed {name}, which was put back" for name in self._watch.changed()]

    def _state_after_import(self) -> list[str]:
        """What the import changed: it stays as it is, since it is so wherever the candidate is imported, but for the streams."""
        before, self._watch = self._watch, Watch()
        return before.differs_from(self._watch)


def _spoiled() -> bool:
    """Whether a fault on the GPU has left this process without the use of it. What was begun there is done otherwise."""
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def _clipped(text: str) -> str:
    """Without what no encoding can hold, and not longer than a sentence may be."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _limit() -> None:
    """Memory has a limit, which makes an allocation fail; where it does not hold, this process is the system's first to end."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError, StopIteration):
        Path("/proc/self/oom_score_adj").write_text("1000")
        used = _kibibytes("/proc/self/status", "VmData") << 10
        available = min(_kibibytes("/proc/meminfo", "MemAvailable") << 10, _left_of_group())
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (used + int(SHARE * available), most))


def _kibibytes(file: str, name: str) -> int:
    """A number out of a file of the kernel's."""
    line = next(line for line in Path(file).read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


def _left_of_group() -> int:
    """What the control group may still allocate; very much where it has no limit."""
    group = Path("/sys/fs/cgroup")
    try:
        return int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return 1 << 60

"""Providers in processes of their own: a call goes through shared memory and comes back as bits, or as how its process ended.

What runs elsewhere can end itself, hang, flood its output or change the state of its process: each is what one call came to, and
another process follows.
"""

from __future__ import annotations

import atexit
import fcntl
import inspect
import json
import os
import pickle
import select
import signal
import socket
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socket import send_fds
from typing import Any, NoReturn

import torch

from difftest import errors
from difftest.cases.case import Case
from difftest.providers.resolve import is_file, resolve
from difftest.run import buffers, memory, nursery
from difftest.run.buffers import Buffer
from difftest.run.host import ERRORS, MOST, Asked, Place, Request
from difftest.run.memory import Shared
from difftest.run.perform import Call, Kept, Performed, Performer
from difftest.wording import counted
from reference.contracts import Contract
from reference.providers import Provider, Unavailable, known_elsewhere, names
from reference.providers.protocol import Call as Question

SECONDS, SECONDS_AN_ELEMENT = 60.0, 1e-5  # that a call may take: a form to compile, a thousand times what a loop in C takes
SECONDS_TO_IMPORT = 300.0
MOST_LOST = 64  # processes of a provider in a run; what is left then is not run
KILLED_AGAIN = 2  # times that a call is made, or a question asked, once more because its process was killed
HANGS_COUNT = 16  # times as much as another loss: each takes its minute
MOST_PRINTED = 1 << 20  # bytes kept of what a provider prints in a run
FLOOD = 1 << 28  # bytes that a call may print before they are no longer counted, and no longer take room
PRINTED = Path("out/printed")
OWN = ("numba", "textbook")  # on a CPU they run on the emulator, which checks every access
ARITHMETIC = "torch"  # this project's own: what cases are held against


# How a process was lost, in a reason.
NO_ANSWER = "said something that is no answer"
LOST = ("ended its process", "cut itself off", "was ended by", "gave no answer", NO_ANSWER)


class GivenUp(RuntimeError):
    """So many processes of a provider were lost that no other follows."""


class NotShared(RuntimeError):
    """Another process can't open memory of this device here; the message is the reason."""


class _Lost(Exception):
    """The process is gone; the text says how, after "it"."""

    hung = False
    killed = False  # by another process: the system, which lacks memory, or a person


def provider(spec: str, option: str = "--candidate", *, device: str = "cpu", seconds: float | None = None) -> Provider:
    """The implementation that a name or FILE.py:FUNCTION means, in a process of its own where it is other people's code and the
    system has what that takes. UsageError as of `resolve`. `seconds`: of a call; None: by its size.
    """
    if not needs_isolation(spec, device):
        return resolve(spec, option)
    try:
        return Isolated(spec, option, torch.device(device), seconds)
    except NotShared as error:
        print(f"{spec} runs in the tester's process: {error}", file=sys.stderr)
        return resolve(spec, option)


def prepare(specs: Sequence[str], in_process: bool = False) -> None:
    """Makes ready, ahead of anything else, what the processes of these come from."""
    if not in_process and any(needs_isolation(spec.strip(), "cpu") for spec in specs if spec.strip()):
        nursery.prepare()


def needs_isolation(spec: str, device: str) -> bool:
    """Whether `provider` gives one in a process of its own: everybody's but this project's own arithmetic, and, on a CPU, its own
    kernels."""
    if not memory.shareable() or spec.partition(":")[0] == ARITHMETIC:
        return False
    if spec in OWN:
        return device != "cpu"
    return is_file(spec) or spec not in names() or known_elsewhere(spec)


def limit(case: Case, seconds: float | None) -> float:
    """Seconds that a call of the case may take: those asked for, else by its size."""
    return SECONDS + SECONDS_AN_ELEMENT * case.rows * case.width if seconds is None else seconds


def printed_by(spec: str) -> Path:
    """Where what a provider prints is kept."""
    name = Path(spec.rpartition(":")[0]).stem if is_file(spec) else spec
    return PRINTED / f"{''.join(c if c.isalnum() else '-' for c in name)}-{os.getpid()}.txt"


class _Process:
    """One process of a provider, and the channel to it."""

    def __init__(self) -> None:
        nursery.get()  # before there is a channel: a copy of this process must not have its other end
        self.channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MOST)
        self.printed = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self.flooded = False
        file = self.printed.fileno()
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
        try:
            self.pid = nursery.start(its, file)
        finally:
            its.close()

    def ask(self, request: tuple, seconds: float, *files: int) -> dict[str, Any]:
        """The answer to a request. _Lost where none comes."""
        until = time.monotonic() + seconds
        try:
            send_fds(self.channel, [pickle.dumps(request)], files)
            while not select.select([self.channel], [], [], 0.25)[0]:
                self._stem()
                if time.monotonic() > until:
                    self.end(now=True)
                    lost = _Lost(f"gave no answer in {seconds:g} s")
                    lost.hung = True
                    raise lost
            message = self.channel.recv(2 * MOST)
        except OSError as error:
            if errors.is_scarce(error):  # the tester's own lack, which says nothing of the candidate
                raise
            message = b""
        if message:
            answer = _parsed(message)
            if isinstance(answer, dict):
                return answer
            self.end(now=True)
            raise _Lost(NO_ANSWER)
        code = self.end(now=False)
        lost = _Lost(_how(code))
        lost.killed = code == -signal.SIGKILL
        raise lost

    def end(self, *, now: bool) -> int:
        """Ends the process; its exit code."""
        self.channel.close()
        try:
            return nursery.get().end(self.pid, now=now)
        except nursery.Gone:
            nursery.lost()
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            return -signal.SIGKILL

    def _stem(self) -> None:
        """Empties the file where a flood goes into it."""
        with suppress(OSError):
            if os.fstat(self.printed.fileno()).st_size > FLOOD:
                os.truncate(self.printed.fileno(), MOST_PRINTED)
                self.flooded = True


def _parsed(message: bytes) -> Any:
    """What a message says; None for what is no JSON."""
    try:
        return json.loads(message)
    except (ValueError, RecursionError):
        return None


def _how(code: int) -> str:
    if code == nursery.BY_FORCE:
        return "cut itself off from the tester"
    if code >= 0:
        return f"ended its process (exit code {code})"
    return f"was ended by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"was ended by signal {-code}"


class Isolated:
    """A provider whose code runs in another process. One that is lost is followed by a new one, when it is asked again."""

    def __init__(self, spec: str, option: str, device: torch.device, seconds: float | None) -> None:
        self._spec = spec  # a path of it is from the tester's directory, where each process begins
        self._option, self._device, self._seconds = option, device, seconds
        self._shared = Shared(device)
        self._opened = -1  # generation of the memory that the process has opened
        self._process: _Process | None = None
        self._functions: dict[tuple[str, Contract | None], _Function] = {}
        self._checked: dict[Asked, str | None] = {}
        self._returned: weakref.WeakSet[_Returned] = weakref.WeakSet()
        self._losses = 0
        self._printed = 0
        self.file = printed_by(spec)  # what it prints, if it prints
        try:
            about = self._started()
        except _Lost as lost:
            from difftest.errors import UsageError

            raise UsageError(f"{option}: {spec} does not import: it {lost}") from None
        if device.type != "cpu":
            self._try_to_share()
        closing = weakref.WeakMethod(self.close)
        atexit.register(lambda: (close := closing()) and close())  # ahead of torch's own end, which wants shared memory back
        self.name = spec if is_file(spec) else str(about["name"])
        self.in_place = bool(about["in_place"])
        self.batch_invariant = bool(about["batch_invariant"])
        self._version = str(about["version"])
        self._notes = [str(note) for note in about["notes"]]

    def _try_to_share(self) -> None:
        try:
            self._shared.begin(memory.ALIGNMENT)
            self._open()
        except (_Lost, RuntimeError) as error:
            self.close()
            raise NotShared(f"no memory of {self._device} can be shared: {' '.join(str(error).split())[:300]}") from None

    def claims(self, op: str) -> Contract | None:
        """As of `Provider`."""
        fields = self._ask(("claims", op))["contract"]
        if fields is None:
            return None
        return Contract(**{**fields, "parameters": tuple((name, value) for name, value in fields["parameters"])})

    def check(self, case: Question) -> str | None:
        """As of `Provider`; the end of the process is a reason too."""
        asked = Asked(case.op, case.dtype, case.width, case.device)
        if asked not in self._checked:
            try:
                self._checked[asked] = self._ask(("check", asked))["reason"]
            except Unavailable as error:
                return str(error)
        return self._checked[asked]

    def check_ahead(self, cases: Sequence[Question]) -> None:
        """Asks about several calls at once, so that `check` knows the answers."""
        asked = [Asked(case.op, case.dtype, case.width, case.device) for case in cases]
        new = [each for each in dict.fromkeys(asked) if each not in self._checked]
        with suppress(Unavailable):
            if new:
                reasons = self._ask(("checks", new))["reasons"]
                self._checked.update(zip(new, reasons, strict=True))

    def function(self, op: str, contract: Contract | None = None) -> Any:
        """As of `Provider`: a `Performer`."""
        key = op, contract
        if key not in self._functions:
            self._functions[key] = _Function(self, op, contract, bool(self._ask(("function", op, contract))["takes_out"]))
        return self._functions[key]

    def native(self, op: str) -> NoReturn:
        """Nothing is timed in another process."""
        raise ValueError(f"{self.name} runs in a process of its own: it has no form for timing")

    def version(self) -> str:
        """As of `Provider`."""
        return self._version

    def close(self) -> None:
        """Ends the process, and keeps what it printed."""
        if self._process:
            self._process.end(now=True)
            self._keep_printed()
            self._forget()
        self._shared.close()

    # --- what functions use ------------------------------------------------------------------------------------------------

    def memory(self, *cases: Case) -> buffers.Take:
        """Memory for these calls."""
        self._shared.begin(sum(buffers.room(case) for case in cases))
        return self._shared.take

    def perform_all(
        self, function: _Function, calls: Sequence[tuple[Case, Mapping[str, Buffer], Buffer | None]]
    ) -> list[Performed] | None:
        """As of `Performer`: one message there and one back, so that the two processes change places once, not once a call."""
        made = [(case, Call.of(case, given, out)) for case, given, out in calls]
        results = [self._shared.take(case.rows * case.width, call.dtype) for case, call in made]
        try:
            number = self._number(function)
            requests = [self._request(case, call, result) for (case, call), result in zip(made, results, strict=True)]
            assert self._process
            self._shared.settle()
            answers = self._process.ask(("calls", number, requests), max(limit(case, self._seconds) for case, _ in made))["calls"]
            done = [self._told(told, r.view(c.shape)) for told, r, (c, _) in zip(answers, results, made, strict=True)]
        except _Lost as lost:
            self._lose(lost)
            return None
        except (KeyError, TypeError, ValueError, Unavailable):
            return None
        quiet = not self._keep_printed() and not any(told.get("spoiled") or told["notes"] or told["threads"] for told in answers)
        return done if quiet and all(each.complete and not each.faults for each in done) else None

    def perform(self, function: _Function, case: Case, given: Mapping[str, Buffer], out: Buffer | None) -> Performed:
        """One call of a function; where its process is killed from outside, for all that is known, again."""
        done, killed = self._performed(function, case, given, out)
        for _ in range(KILLED_AGAIN):
            if not killed:
                break
            for buffer in {id(buffer): buffer for buffer in (*given.values(), *([out] if out else []))}.values():
                buffer.restore()
            done, killed = self._performed(function, case, given, out)
        self._losses += killed
        return done

    def _performed(
        self, function: _Function, case: Case, given: Mapping[str, Buffer], out: Buffer | None
    ) -> tuple[Performed, bool]:
        """One attempt, and whether the process was killed in it."""
        call = Call.of(case, given, out)
        result, killed = self._shared.take(case.rows * case.width, call.dtype), False
        printed, spoiled = "", False
        try:
            number = self._number(function)
            assert self._process
            self._shared.settle()
            told = self._process.ask(("call", number, self._request(case, call, result)), limit(case, self._seconds))
            done = self._told(told, result.view(case.shape))
            spoiled = bool(told.get("spoiled"))
        except _Lost as lost:
            printed, killed = self._lose(lost), lost.killed
            done = Performed([str(lost)], str(lost), raised=True)
        except Unavailable as error:
            done = Performed([f"raised {error}"], f"raised {error}", raised=True)
        printed = printed or self._keep_printed()
        if spoiled:
            self._retire()
        done.notes = [*self._notes, *done.notes, *([f"printed {printed}"] if printed else [])]
        return done, killed

    def look(self, returned: _Returned) -> torch.Tensor | None:
        """What a tensor that was returned holds now; None where its process is gone."""
        process = returned.process
        if process is None or process is not self._process:
            return None
        shape, dtype = returned.shape, returned.dtype
        self._shared.begin(shape.numel() * dtype.itemsize + memory.ALIGNMENT)
        try:
            self._open()
            into = self._shared.take(shape.numel(), dtype)
            process.ask(("look", returned.number, self._shared.offset(into)), SECONDS)
        except _Lost as lost:
            self._lose(lost)
            return None
        return into.view(shape).clone()

    def _request(self, case: Case, call: Call, result: torch.Tensor) -> Request:
        places = {name: self._place(placed) for name, placed in call.placed.items()}
        kept = tuple(each.number for each in self._returned)
        return Request(case.op, call.contract, places, call.out, call.shape, call.dtype, self._shared.offset(result), kept)

    def _place(self, placed: buffers.Placed) -> Place:
        storage = placed.storage
        start = self._shared.offset(storage)
        return Place(start, storage.numel(), storage.dtype, placed.shape, placed.strides, placed.base)

    def _told(self, told: Mapping[str, Any], result: torch.Tensor) -> Performed:
        """An answer; one that has not the form of one is an end of the process too. The output's bits are copied first."""
        if "error" in told:
            return Performed([str(told["text"])], str(told["text"]), raised=True)
        try:
            done = Performed(
                [str(fault) for fault in told["faults"]],
                str(told["failure"]),
                bool(told["raised"]),
                str(told["refused"]),
                bool(told["complete"]),
                str(told["kind"]),
                notes=[str(note) for note in told["notes"]],
                threads=bool(told["threads"]),
            )
            if done.complete and told["kept"] is not None:
                where, first, last = told["span"]
                done.output = result.clone()
                done.kept = _Returned(self, int(told["kept"]), (str(where), int(first), int(last)), done.output)
                self._returned.add(done.kept)
        except (KeyError, TypeError, ValueError):
            raise _Lost(NO_ANSWER) from None
        return done

    # --- the process -------------------------------------------------------------------------------------------------------

    def _started(self) -> dict[str, Any]:
        """Starts a process, which looks the provider up."""
        self._process = _Process()
        self._opened = -1
        for function in self._functions.values():
            function.number = None
        try:
            return _understood(self._process.ask(("resolve", self._spec, self._option), SECONDS_TO_IMPORT))
        except BaseException:
            self._keep_printed()
            self._process.end(now=True)
            self._process = None
            raise

    def _ask(self, request: tuple) -> dict[str, Any]:
        """A question about the provider. Unavailable where the process ends of it."""
        for left in reversed(range(KILLED_AGAIN + 1)):
            try:
                self._ready()
                assert self._process
                return _understood(self._process.ask(request, SECONDS))
            except _Lost as lost:
                self._lose(lost)
                if not (lost.killed and left):
                    raise Unavailable(f"it {lost} when asked for its {request[0]}") from None
        raise AssertionError("the last attempt returns or raises")

    def _ready(self) -> None:
        if self._process is None:
            if self._losses >= MOST_LOST:
                raise GivenUp(f"{self.name}: {MOST_LOST} processes were lost, or {MOST_LOST // HANGS_COUNT} hung")
            try:
                self._started()
            except ValueError as error:
                raise Unavailable(str(error)) from None

    def _open(self) -> None:
        """Lets the process open the memory that this one has."""
        self._ready()
        assert self._process
        if self._opened != self._shared.generation:
            assert self._process
            file = self._shared.file
            assert self._process
            opened = self._process.ask(("open", self._shared.opening()), SECONDS, *([] if file is None else [file]))
            _understood(opened)
            self._opened = self._shared.generation

    def _number(self, function: _Function) -> int:
        self._open()
        if function.number is None:
            assert self._process
            function.number = int(_understood(self._process.ask(("function", *function.key), SECONDS))["number"])
        return function.number

    def _lose(self, lost: _Lost) -> str:
        """Counts the loss; what the process printed, as `_keep_printed`."""
        self._losses += HANGS_COUNT if lost.hung else 0 if lost.killed else 1
        printed = self._keep_printed()
        self._forget()
        return printed

    def _retire(self) -> None:
        """Ends a process that is of no more use; the next call has another."""
        if self._process:
            self._process.end(now=True)
        self._forget()

    def _forget(self) -> None:
        """The process is gone, and with it what it held."""
        self._process = None
        self._returned.clear()
        self._shared.gone()

    def _keep_printed(self) -> str:
        """Moves what was printed to its file, as much as is kept; how much there was, empty for nothing."""
        if not self._process:
            return ""
        file = self._process.printed.fileno()
        size = os.fstat(file).st_size
        if not size:
            return ""
        wanted = min(size, MOST_PRINTED - self._printed)
        with suppress(OSError):
            if wanted:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with self.file.open("ab" if self._printed else "wb") as kept:
                    kept.write(os.pread(file, wanted, 0))
        self._printed += wanted
        os.truncate(file, 0)
        flooded, self._process.flooded = self._process.flooded, False
        return f"more than {FLOOD:,} bytes" if flooded else counted(size, "byte")


class _Function(Performer):
    """A provider's function for one contract."""

    def __init__(self, provider: Isolated, op: str, contract: Contract | None, takes_out: bool) -> None:
        self._provider = provider
        self.key = op, contract
        self.number: int | None = None  # in the process that there is
        names = ["out"] if takes_out else []
        self.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in names])

    def __call__(self, *arguments: Any) -> NoReturn:
        """No plain call: its memory would be nobody else's."""
        raise TypeError("a function in another process is called by difftest.run.call alone")

    def memory(self, *cases: Case) -> buffers.Take:
        """As of `Performer`."""
        return self._provider.memory(*cases)

    def perform_all(self, calls: Sequence[tuple[Case, Mapping[str, Buffer], Buffer | None]]) -> list[Performed] | None:
        """As of `Performer`."""
        return self._provider.perform_all(self, calls)

    def perform(self, case: Case, given: Mapping[str, Buffer], out: Buffer | None) -> Performed:
        """As of `Performer`."""
        return self._provider.perform(self, case, given, out)


class _Returned(Kept):
    """A tensor in the other process."""

    def __init__(self, provider: Isolated, number: int, span: tuple[str, int, int], copy: torch.Tensor) -> None:
        self._provider, self.number, self._span = provider, number, span
        self.process = provider._process
        self._copy = copy
        self.shape, self.dtype = copy.shape, copy.dtype

    @property
    def span(self) -> tuple[str, int, int]:
        """As of `Kept`."""
        return self._span

    def now(self) -> torch.Tensor:
        """As of `Kept`; where its process is gone, what it held."""
        found = self._provider.look(self)
        return self._copy if found is None else found


def _understood(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, or the error that it is."""
    if "error" not in answer:
        return answer
    raise ERRORS.get(str(answer["error"]), Unavailable)(str(answer.get("text", "")))

"""A whole run: every task's sweep, turn by turn; its clock, its state, its planted pairs. Plain data comes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from difftest import interrupts
from difftest.exhaustive import planting
from difftest.exhaustive.domain import PAIRS, Slice, domain
from difftest.exhaustive.sweep import Planted, Sweep
from difftest.exhaustive.tally import Tally
from difftest.exhaustive.worst import worst_pairs
from reference.formats import FORMATS
from reference.operators.contract import Contract
from reference.providers import Provider, Refused, Unavailable

SCHEMA = "numba-kernels/exhaustive/1"
PARTS = ("tasks",)  # of the document: lists with an entry a line
TURN_ON_GPU = 64  # slices between two looks at the clock: an eighth of all pairs, milliseconds
SAVE_EVERY = 1.0  # seconds between two saves of the state

OUT_OF_TIME, INTERRUPTED = "out of time", "interrupted"


@dataclass(frozen=True, slots=True)
class Task:
    """One provider, as it was named, held to one contract of an operator in a dtype."""

    candidate: str
    provider: Provider
    op: str
    dtype: str
    contract: Contract

    @property
    def name(self) -> str:
        """In a line."""
        return f"{self.candidate} {self.op} {self.dtype} {self.contract.code}"

    def head(self) -> dict[str, Any]:
        """What its record begins with."""
        return {
            "candidate": self.candidate,
            "op": self.op,
            "dtype": self.dtype,
            "contract": self.contract.code,
            **{each: self.contract.value(each) for each in self.parameters},
            "of": PAIRS,
        }

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the numbers that a call passes."""
        names = tuple(name for name, _ in self.contract.parameters)
        return names or (("eps",) if not self.contract.code.startswith("S") else ())


@dataclass(frozen=True, slots=True)
class Request:
    """What to sweep, how much of it, until when. `plants`: passes after the first, each with one wrong output put in."""

    tasks: Sequence[Task]
    device: torch.device
    share: float = 1.0
    seed: int = 0
    plants: int = 0
    time_budget: float | None = None


@dataclass(slots=True)
class _Progress:
    """Of one task: slices done and what they held; seconds of the device and of the clock."""

    done: int = 0
    tally: Tally = field(default_factory=Tally)
    device_seconds: float = 0.0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        timed = {"device_seconds": round(self.device_seconds, 5), "seconds": round(self.seconds, 3)}
        return {"slices_done": self.done, **self.tally.to_json(), **timed}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> _Progress:
        tally = Tally.from_json(dict(record))
        return cls(int(record["slices_done"]), tally, float(record["device_seconds"]), float(record["seconds"]))


class _Stopped(Exception):
    """The time is up."""


Save = Callable[[Mapping[str, Any]], None]
OnTurn = Callable[[Task, int], None]
OnTask = Callable[[Mapping[str, Any]], None]


def run(
    what: Request,
    about: Mapping[str, Any],
    earlier: Mapping[str, Any] | None = None,
    save: Save = lambda document: None,
    on_turn: OnTurn = lambda task, pairs: None,
    on_task: OnTask = lambda record: None,
) -> dict[str, Any]:
    """Sweeps every task that the time allows, and returns the document. Ctrl-C ends it early; what was found stays.

    `about`: what the document begins with. `earlier`: the document of a run that was stopped, whose slices are not done again.
    `save` gets the document as it grows; `on_turn` how many pairs were judged since the last turn.
    """
    start = time.monotonic()
    document: dict[str, Any] = {**about, "complete": False, "stopped": None, "tasks": []}
    runner = _Runner(what, document, earlier or {}, start, save, on_turn)
    try:
        with interrupts.on_sigterm_too(), torch.no_grad(), _stream(what.device):
            for task in what.tasks:
                on_task(runner.task(task))
    except KeyboardInterrupt:
        document["stopped"] = INTERRUPTED
    except _Stopped:
        document["stopped"] = OUT_OF_TIME
    document["complete"] = len(document["tasks"]) == len(what.tasks) and not document["stopped"]
    document["seconds"] = round(time.monotonic() - start, 2)
    save(document)
    return document


def check_state(document: Mapping[str, Any]) -> None:
    """Reads all of an earlier run's document that `run` will read: raises what that would."""
    dict(document["request"])
    for record in document["tasks"]:
        key_of(record)
        if "counts" in record:
            _Progress.from_json(record)


def key_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What tells one task's record from another's."""
    return tuple(str(record[name]) for name in ("candidate", "op", "dtype", "contract"))


class _Runner:
    def __init__(
        self,
        what: Request,
        document: dict[str, Any],
        earlier: Mapping[str, Any],
        start: float,
        save: Save,
        on_turn: OnTurn,
    ) -> None:
        self.what, self.document, self.start, self.save, self.on_turn = what, document, start, save, on_turn
        self.earlier = {key_of(record): record for record in earlier.get("tasks", ())}
        self.saved = start

    def task(self, task: Task) -> dict[str, Any]:
        """One task, from where an earlier run left it."""
        known = self.earlier.get(key_of(task.head()))
        if known and (known.get("finished") or known.get("skipped")):
            self.document["tasks"].append(dict(known))
            return dict(known)
        record = task.head()
        self._check_time()
        try:
            reached = _Progress.from_json(known) if known and "counts" in known else _Progress()
            where = domain(FORMATS[task.dtype], self.what.share, self.what.seed, on_gpu=self.what.device.type == "cuda")
            function = task.provider.function(task.op, task.contract)
            sweep = Sweep(task.op, task.dtype, task.contract, function, where, self.what.device)
        except (Unavailable, ValueError) as error:
            record["skipped"] = " ".join(str(error).split())
            self.document["tasks"].append(record)
            return record
        slices = list(where.slices())
        record |= {"slices": len(slices), "rows": where.rows, "width": where.width, "finished": False, **reached.to_json()}
        self.document["tasks"].append(record)
        try:
            self._warm(sweep, slices[0])
            self._sweep(task, sweep, slices, reached, record)
            record["finished"] = True
            if self.what.plants and not reached.tally.wrong:
                record["planted"] = self._plant(task, sweep, slices)
        except (KeyboardInterrupt, _Stopped):
            raise
        except Refused as error:
            record["skipped"] = " ".join(str(error).split())
        except BaseException as error:  # a candidate may raise anything, SystemExit too
            record["failure"] = f"raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finally:
            record |= reached.to_json()
            record["worst"] = worst_pairs(task.op, task.dtype, task.contract, where, reached.tally.worst)
        self._save()
        return record

    def _warm(self, sweep: Sweep, part: Slice) -> None:
        """Compiles whatever compiles on first use."""
        for _ in range(2):
            sweep.step(part)
        sweep.read()
        sweep.clear()

    def _sweep(self, task: Task, sweep: Sweep, slices: list[Slice], reached: _Progress, record: dict[str, Any]) -> None:
        """Whole turns count: of one that is interrupted, nothing."""
        before, start = reached.tally, time.perf_counter() - reached.seconds
        for turn, seconds in self._turns(sweep, slices[reached.done :]):
            reached.tally = before.plus(sweep.read())
            reached.done += len(turn)
            reached.device_seconds += seconds
            reached.seconds = time.perf_counter() - start
            self.on_turn(task, sum(part.pairs for part in turn))
            record |= reached.to_json()
            self._save(seldom=True)
            self._check_time()

    def _turns(
        self, sweep: Sweep, slices: Sequence[Slice], planted: Planted | None = None
    ) -> Iterator[tuple[list[Slice], float]]:
        """Turn after turn: its slices, and the seconds that they took on the device."""
        left = iter(slices)
        size = TURN_ON_GPU if self.what.device.type == "cuda" else 1
        while turn := list(islice(left, size)):
            with _clock(self.what.device) as seconds:
                for part in turn:
                    sweep.step(part, planted)
            yield turn, seconds()

    def _plant(self, task: Task, sweep: Sweep, slices: list[Slice]) -> dict[str, Any]:
        """As many passes as were asked for, each with one wrong output at random."""
        pairs, seen = [], 0
        for number in range(self.what.plants):
            planted = planting.draw(task.op, task.dtype, task.contract, sweep.domain, self.what.seed + number)
            sweep.clear()
            for turn, _ in self._turns(sweep, slices, planted):
                self.on_turn(task, sum(part.pairs for part in turn))
                self._check_time()
            caught = planting.caught(sweep.domain, planted, sweep.read())
            seen += caught
            pairs.append({**planting.describe(sweep.domain, planted), "found": caught})
        return {"passes": self.what.plants, "found": seen, "pairs": pairs}

    def _check_time(self) -> None:
        budget = self.what.time_budget
        if budget is not None and time.monotonic() - self.start >= budget:
            raise _Stopped

    def _save(self, *, seldom: bool = False) -> None:
        now = time.monotonic()
        if not seldom or now - self.saved >= SAVE_EVERY:
            self.saved = now
            self.save(self.document)


@contextmanager
def _clock(device: torch.device) -> Iterator[Callable[[], float]]:
    """The seconds that the block's work took: by events on a GPU, which is waited for."""
    if device.type != "cuda":
        start = time.perf_counter()
        end = [start]
        yield lambda: end[0] - start
        end[0] = time.perf_counter()
        return
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    yield lambda: first.elapsed_time(last) / 1e3
    last.record()
    last.synchronize()


def _stream(device: torch.device) -> Any:
    """A stream of its own: candidates run on the current one."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))


def judged(record: Mapping[str, Any]) -> int:
    """Pairs of a task's record that were looked at."""
    return int(record.get("pairs", 0))


def differs(record: Mapping[str, Any]) -> bool:
    """Whether a task's record has a difference."""
    return bool(record.get("failure") or record.get("wrong"))


def missed(record: Mapping[str, Any]) -> int:
    """Planted outputs that were not found."""
    planted = record.get("planted")
    return planted["passes"] - planted["found"] if planted else 0

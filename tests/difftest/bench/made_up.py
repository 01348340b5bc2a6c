"""Stand-ins for what the benchmark needs a GPU for: a clock, and providers with known times and known faults."""

from __future__ import annotations

from reference.arithmetic import evaluate
from reference.contracts import contract
from reference.operators import operator


class Recorded:
    def __init__(self, calls):
        self.calls = calls
        self.outputs = [call() for call in calls]

    def run(self):
        self.outputs = [call() for call in self.calls]


class FakeTimer:
    """Runs calls on the CPU; a provider's call takes the time in `microseconds`, or 1 where it is not named there.

    `log` holds what happened, in order. `stop_after` turns end in Ctrl-C.
    """

    def __init__(self, microseconds=None, stop_after=None, free=2**15):
        self.microseconds = microseconds or {}
        self.stop_after = stop_after
        self.free = free
        self.log = []
        self.turns = 0
        self.dead = None

    def warm(self, calls):
        for call in calls:
            call()

    def capture(self, calls):
        self.log.append(("capture", name_of(calls[0]), len(calls)))
        return Recorded(calls)

    def launch(self, captured, refresh):
        refresh()
        captured.run()

    def turn(self, captured, launches, refresh):
        self.turns += 1
        if self.stop_after is not None and self.turns > self.stop_after:
            raise KeyboardInterrupt
        name = name_of(captured.calls[0])
        self.log.append(("turn", name, launches))
        for _ in range(launches):
            refresh()
            captured.run()
        return [len(captured.calls) * self.microseconds.get(name, 1.0) / 1e6] * launches

    def wake(self):
        self.log.append(("wake", "", 0))

    def synchronize(self):
        if self.dead:
            raise RuntimeError(self.dead)

    def free_bytes(self):
        return self.free

    def release(self):
        pass


def name_of(call):
    """The provider whose call it is: a `partial` of its function, or of a way to copy."""
    return getattr(call.func, "provider", "copy")


class FakeProvider:
    """Plain arithmetic under a contract, in place where asked; `fault` is put into every call."""

    def __init__(self, name, code="", in_place=True, fault=None, lacks=(), refusal=None):
        self.name, self.in_place = name, in_place
        self._code, self._fault, self._lacks, self._refusal = code, fault, lacks, refusal

    def claims(self, op):
        return None if op in self._lacks else contract(op, self._code if operator(op).mutated else "")

    def check(self, case):
        return f"{self.name} has no {case.op}" if case.op in self._lacks else self._refusal

    def function(self, op, contract=None):
        return self.native(op)

    def native(self, op):
        which, claimed = operator(op), self.claims(op)

        def call(*arguments):
            if isinstance(self._fault, Exception):
                raise self._fault
            tensors = dict(zip(which.inputs, arguments, strict=False))
            found = evaluate(op, tensors, claimed)
            if self._fault == "zero":
                found["output"].zero_()
            if not which.mutated:
                return found["output"]
            if self._fault == "lazy":  # leaves the buffers as they were
                return None
            if not self.in_place:
                return found["output"], found["residual"]
            tensors["input"].copy_(found["output"])
            tensors["residual"].copy_(found["residual"])
            return tensors["input"], tensors["residual"]

        call.provider = self.name
        return call

    def version(self):
        return "1"


def row(provider, us, status="ok", reason=None, moved=1_000_000):
    """One provider's row in a result file."""
    if us is None:
        return {"provider": provider, "status": "skipped", "reason": reason or "not here"}
    found = {"provider": provider, "status": status, "us": {"median": us, "p10": us, "p90": us, "samples": 15}}
    return {**found, "gbps": moved / us / 1e3, **({"reason": reason} if reason else {})}


def point(op, dtype, rows, width, moved, times, copy_gbps=4000.0):
    """One point of a result file."""
    return {
        "op": op,
        "dtype": dtype,
        "rows": rows,
        "width": width,
        "bytes": moved,
        "calls": 10,
        "copy": {"us": {"median": moved / copy_gbps / 1e3}, "gbps": copy_gbps},
        "results": [row(name, us, moved=moved) for name, us in times.items()],
    }


def document(points, host=(), **more):
    """A result file."""
    return {
        "schema": "numba-kernels/bench/2",
        "complete": True,
        "stopped": None,
        "date": "2026-11-30T00:00:00+00:00",
        "seconds": 1.0,
        "card": {"name": "Some GPU"},
        "clocks": {"driver": "1.2"},
        "environment": {"torch": "2.11"},
        "card_copy": {"gbps": 4300.0},
        "points": list(points),
        "host": list(host),
        "not_run": [],
        **more,
    }

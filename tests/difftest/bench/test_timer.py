"""What lies between the two events of a timed launch: the calls, and nothing else."""

import torch

from difftest.bench import timer


class Logged:
    """Stands for an event or a graph: says what was done to it."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def record(self):
        self.log.append(self.name)

    def replay(self):
        self.log.append("launch")

    def elapsed_time(self, other):
        return 2.0  # milliseconds


def test_buffers_are_refreshed_before_the_first_event_and_not_between_the_two(monkeypatch):
    log = []
    names = iter(["start", "end"] * 3)
    monkeypatch.setattr(timer, "FLUSH_BYTES", 64)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Logged(log, next(names)))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: log.append("hold"))
    clock = timer.GraphTimer(torch.device("cpu"))
    monkeypatch.setattr(clock, "_flush", lambda: log.append("flush"))
    captured = timer._Graph(Logged(log, "graph"), [])
    assert clock.turn(captured, 3, lambda: log.append("refresh")) == [2e-3] * 3
    assert log == ["refresh", "flush", "hold", "start", "launch", "end"] * 3

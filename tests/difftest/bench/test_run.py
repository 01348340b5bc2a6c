"""A run's file: complete, stopped, or cut short, it holds what was measured."""

import json

import pytest
import torch

from difftest.bench import host, run
from difftest.bench.shapes import timed
from difftest.report.record import write_json

from .made_up import FakeProvider, FakeTimer

CPU = torch.device("cpu")
POINTS = [
    timed("fused_add_rmsnorm", "bf16", 2, 64, "cpu"),
    timed("rmsnorm", "bf16", 2, 64, "cpu"),
    timed("rmsnorm", "fp32", 3, 5, "cpu"),
]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(run, "CARD_COPY_BYTES", 2**10)
    monkeypatch.setattr(host, "LOOP", 2)
    monkeypatch.setattr(host, "_PUBLIC", {})


def request(**more):
    return run.Request(POINTS, [FakeProvider("numba"), FakeProvider("peer")], CPU, **more)


def test_a_whole_run_is_complete():
    document = run.run(request(), FakeTimer(), {"card": {"name": "none"}})
    assert document["complete"]
    assert document["stopped"] is None
    assert document["card"] == {"name": "none"}
    assert [(p["op"], p["dtype"]) for p in document["points"]] == [(p.op, p.dtype) for p in POINTS]
    assert [entry["op"] for entry in document["host"]] == ["fused_add_rmsnorm", "rmsnorm"]
    json.dumps(document, allow_nan=False)


def test_the_file_is_written_after_each_point_and_survives_an_interruption(tmp_path):
    file = tmp_path / "bench.json"
    seen = []

    def save(document):
        write_json(file, document)
        seen.append(len(document["points"]))

    # two turns for the card's copy; 4 x 5 for the first point; the second is cut off in its middle
    document = run.run(request(), FakeTimer(stop_after=26), {}, save)
    assert document["stopped"] == "interrupted"
    kept = json.loads(file.read_text())
    assert kept == json.loads(json.dumps(document))
    assert [p["op"] for p in kept["points"]] == ["fused_add_rmsnorm"]
    assert kept["not_run"] == ["rmsnorm bf16 2x64", "rmsnorm fp32 3x5"]
    assert not kept["complete"]
    assert seen == [0, 1, 1, 1]


def test_out_of_time_starts_no_new_point():
    document = run.run(request(time_budget=0.0), FakeTimer(), {})
    assert document["stopped"] == "out of time"
    assert len(document["not_run"]) == 3


def test_a_point_that_does_not_fit_is_listed_and_the_next_one_is_measured(monkeypatch):
    whole = run.measure.point

    def point(where, *rest):
        if where == POINTS[0]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return whole(where, *rest)

    monkeypatch.setattr(run.measure, "point", point)
    document = run.run(request(), FakeTimer(), {})
    assert document["complete"]
    first, second, _ = document["points"]
    assert {row["status"] for row in first["results"]} == {"skipped"}
    assert "out of memory" in first["results"][0]["reason"]
    assert {row["status"] for row in second["results"]} == {"ok"}


def test_a_lost_device_stops_the_run_with_what_it_has():
    timer = FakeTimer()
    providers = [FakeProvider("numba"), FakeProvider("bad", fault=RuntimeError("boom"), lacks=("fused_add_rmsnorm",))]

    def die(point, result):
        timer.dead = "unspecified launch failure"

    document = run.run(run.Request(POINTS[:2], providers, CPU), timer, {}, on_point=die)
    assert "unspecified launch failure" in document["stopped"]
    assert len(document["points"]) == 1

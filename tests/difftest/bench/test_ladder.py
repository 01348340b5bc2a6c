"""The ladder's measurement on made-up steps and a made-up clock: each step timed, judged, and held to the step before."""

from contextlib import nullcontext

import pytest
import torch
from click.testing import CliRunner

from difftest import cli
from difftest.bench import command, ladder
from difftest.bench.shapes import timed
from difftest.report import jsonl
from difftest.run import conditions
from reference.arithmetic import evaluate
from reference.contracts import contract

from .made_up import FakeTimer

CPU = torch.device("cpu")
OP = "fused_add_rmsnorm"
NARROW, WIDE = timed(OP, "bf16", 4, 64, "cpu"), timed(OP, "bf16", 3, 2048, "cpu")


class Step:
    """Plain arithmetic in place, under the name that the made-up clock times; `fault` is put into every result."""

    def __init__(self, name, fault=None, widest=None):
        self.name, self.why = name, f"why {name}"
        self._fault, self._widest = fault, widest

    def make(self, rows, width, dtype):
        if self._widest and width > self._widest:
            raise ValueError(f"a row of {width} does not fit")

        def call(input, residual, weight, eps):
            found = evaluate(OP, {"input": input, "residual": residual, "weight": weight}, contract(OP, eps=eps))
            input.copy_(found["output"])
            residual.copy_(found["residual"])
            if self._fault == "up":
                input.copy_((input.view(torch.int16) + 1).view(torch.bfloat16))

        call.provider = self.name
        return call


STEPS = [Step("textbook"), Step("vectors", widest=1024), Step("fast")]
TIMES = {"textbook": 5.0, "vectors": 3.0, "fast": 2.0}


@pytest.fixture(scope="module")
def measured():
    points = [ladder.point(case, STEPS, FakeTimer(TIMES, free=2**22), CPU) for case in (NARROW, WIDE)]
    return {"points": points}


def test_every_step_is_timed_and_judged_at_every_shape_that_it_takes(measured):
    narrow, wide = measured["points"]
    assert [(row["provider"], row["us"]["median"], row["verdict"]) for row in narrow["results"]] == [
        ("textbook", 5.0, "conforms"),
        ("vectors", 3.0, "conforms"),
        ("fast", 2.0, "conforms"),
    ]
    assert [row["status"] for row in wide["results"]] == ["ok", "skipped", "ok"]
    assert list(ladder.remarks(measured, "skipped")) == ["vectors, 3 x 2048: a row of 2048 does not fit"]
    assert list(ladder.remarks(measured, "wrong")) == []


def test_each_step_is_held_to_the_step_before(measured):
    narrow, wide = measured["points"]
    same = {"elements": 4 * 64, "mismatches": 0, "max_ulp": 0}
    assert [row["from_the_step_before"] for row in narrow["results"]] == [None, same, same]
    assert wide["results"][2]["from_the_step_before"]["elements"] == 3 * 2048


def test_a_step_that_computes_something_else_is_wrong_and_says_how_far_it_is():
    found = {"points": [ladder.point(NARROW, [Step("right"), Step("off", "up")], FakeTimer({"off": 1.0}), CPU)]}
    right, off = found["points"][0]["results"]
    assert (right["status"], off["status"], off["verdict"]) == ("ok", "wrong", "differs")
    assert off["from_the_step_before"] == {"elements": 256, "mismatches": 256, "max_ulp": 1}
    [sentence] = ladder.remarks(found, "wrong")
    assert sentence.startswith("off, 4 x 64: ")
    assert "256 of 256 elements lie where no fp32 evaluation of R0W0 rounds to" in sentence


def test_the_table_has_a_row_a_step_with_what_it_adds(measured):
    found = ladder.table(measured)
    assert found.columns == ("step", "4 x 64", "3 x 2048", "what it adds")
    rows = [[getattr(entry, "text", entry) for entry in row] for row in found.rows]
    assert rows == [
        ["textbook", "5.00", "5.00", "why textbook"],
        ["vectors", "3.00", "-", "why vectors"],
        ["fast", "2.00", "2.00", "why fast"],
    ]
    assert found.rows[2][1].strong
    assert not getattr(found.rows[0][1], "strong", False)


@pytest.fixture
def made_up_gpu(monkeypatch):
    """A clock, a card and steps that need none."""
    monkeypatch.setattr(command, "_device", lambda text: CPU)
    monkeypatch.setattr(command, "GraphTimer", lambda device: FakeTimer(TIMES, free=2**22))
    monkeypatch.setattr(conditions, "card", lambda device: {"name": "made up"})
    monkeypatch.setattr(conditions, "clocks", lambda device: {"driver": "0"})
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(ladder, "steps", lambda: STEPS)
    monkeypatch.setattr(ladder, "cases", lambda device: [NARROW, WIDE])


def bench(*words):
    return CliRunner().invoke(cli.main, ["bench", "--ladder", *map(str, words)])


def test_the_command_prints_the_ladder_and_leaves_its_file(made_up_gpu, tmp_path):
    file = tmp_path / "ladder.jsonl"
    found = bench("--json", file)
    assert found.exit_code == 0, found.output
    assert "what it adds" in found.stdout
    assert "skipped vectors, 3 x 2048" in found.stdout
    document = jsonl.read("FILE", file, ladder.SCHEMA, "a ladder")
    assert document["complete"]
    assert [(point["rows"], point["width"]) for point in document["points"]] == [(4, 64), (3, 2048)]
    assert document["card"] == {"name": "made up"}


def test_a_wrong_step_is_status_1(made_up_gpu, monkeypatch):
    monkeypatch.setattr(ladder, "steps", lambda: [Step("textbook"), Step("off", "up")])
    found = bench()
    assert found.exit_code == 1
    assert "wrong off, 4 x 64" in found.stdout


def test_an_interrupted_ladder_keeps_the_points_that_it_has(made_up_gpu, monkeypatch, tmp_path):
    clock = FakeTimer(TIMES, stop_after=30, free=2**22)
    monkeypatch.setattr(command, "GraphTimer", lambda device: clock)
    file = tmp_path / "ladder.jsonl"
    assert bench("--json", file).exit_code == 130
    document = jsonl.read("FILE", file, ladder.SCHEMA, "a ladder")
    assert (document["complete"], document["stopped"], len(document["points"])) == (False, "interrupted", 1)


@pytest.mark.parametrize("words", [["--ops", "rmsnorm"], ["--shapes", "1x2"], ["--peers", "hf"], ["--dtypes", "bf16"]])
def test_the_ladder_has_shapes_of_its_own(words):
    found = bench(*words)
    assert found.exit_code == 2
    assert words[0] in found.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_status_3():
    assert bench().exit_code == 3

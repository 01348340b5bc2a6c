"""The choices of `numba_kernels.tuning` are held to what benchmarks/tune.py measured; no GPU is asked."""

import ctypes
import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
import pytest
import torch

from difftest.bench import shapes
from difftest.bench.shapes import timed
from difftest.pages import sources
from difftest.pages.forms import H200
from difftest.report import jsonl
from tests.difftest.bench.made_up import FakeTimer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tune():
    spec = importlib.util.spec_from_file_location("tune", ROOT / "benchmarks" / "tune.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def result(tune, times, config=None):
    """A made-up result of one point: variant -> microseconds; the chosen one is today's, or has `config`."""
    case = timed("fused_add_rmsnorm", "bf16", 4096, 4096)
    today = asdict(tune.choice(case, H200).config)
    variants = {name: {"us": us, "config": {"access": 2}} for name, us in times.items()}
    variants["chosen"]["config"] = {**today, **(config or {})}
    return {"points": [{**shapes.head(case), "calls": 9, "chosen": "chosen", "variants": variants}]}


def test_the_choices_of_today_are_within_two_per_cent_of_the_fastest_variant_measured(tune):
    document = sources.latest(sources.TUNING)
    if document is None:
        pytest.skip(f"not measured since the kernels changed: {sources.COMMANDS[sources.TUNING]}")
    assert tune.held_to(document, H200) == []
    measured = {(p["op"], p["dtype"], p["rows"], p["width"]) for p in document["points"]}
    assert {(c.op, c.dtype, c.rows, c.width) for c in shapes.cases()} <= measured


def test_a_choice_that_is_slower_than_that_is_found(tune):
    assert tune.held_to(result(tune, {"chosen": 1.02, "narrow": 1.0}), H200) == []
    [sentence] = tune.held_to(result(tune, {"chosen": 1.03, "narrow": 1.0}), H200)
    assert sentence == "fused_add_rmsnorm bf16 4096x4096: chosen takes 1.030 of the time of narrow"


def test_a_choice_that_was_not_measured_is_found(tune):
    [sentence] = tune.held_to(result(tune, {"chosen": 1.0, "narrow": 2.0}, {"release": "never"}), H200)
    assert "today's choice is none of the 2 variants measured" in sentence


def test_a_choice_that_moved_to_another_measured_variant_is_held_to_that_ones_time(tune):
    made = result(tune, {"chosen": 1.0, "narrow": 1.5}, {"access": 2})
    today = tune.choice(timed("fused_add_rmsnorm", "bf16", 4096, 4096), H200).config
    made["points"][0]["variants"]["narrow"]["config"] = {"access": today.access}
    [sentence] = tune.held_to(made, H200)
    assert sentence.endswith("narrow takes 1.500 of the time of chosen")


def test_the_points_are_the_benchmarks_and_those_that_the_table_quotes(tune):
    found = tune.points()
    assert set(shapes.cases()) <= set(found)
    assert len(found) == len(set(found)) > len(shapes.cases())
    assert [str(case) for case in tune.points(["rmsnorm"], [(2, 8)])] == ["rmsnorm bf16 2x8"]


def test_every_time_that_the_tuning_table_quotes_is_in_the_committed_sweeps(tune):
    sweeps = jsonl.loads((sources.RESULTS / "tuning-sweeps-h200.jsonl").read_text(encoding="utf-8"))
    measured = {}
    for point in sweeps["points"]:
        measured.setdefault((point["op"], point["rows"], point["width"]), []).extend(point["us"].values())
    count = 0
    for threshold, entry in tune.tuning.table().items():
        for row in entry.get("measured", ()):
            [case] = tune.cases_in(row["call"])
            for name, quoted in row["us"].items():
                nearest = min(measured[case.op, case.rows, case.width], key=lambda us: abs(us - quoted))
                assert abs(nearest - quoted) <= 0.006 * quoted, (threshold, row["call"], name)
                count += 1
    assert count > 100


def test_every_variant_of_every_point_is_a_kernel_that_the_gpu_could_run_and_each_is_there_once(tune):
    count = 0
    for case in tune.points():
        kernel = tune.choice(case, H200)
        found = tune.variants(kernel, case, H200)
        assert found["chosen"] == kernel.config
        assert len(set(found.values())) == len(found) > 3, case
        assert all(config.threads <= 1024 and config.cluster <= 16 for config in found.values())
        count += len(found)
    assert count < 1000  # compiled by 16 processes and measured in about four minutes


def test_a_result_of_that_form_is_shown_on_the_page(tune, tmp_path, monkeypatch):
    made = {"schema": tune.SCHEMA, "date": "2026-12-01", "card": {"name": "H200"}, **result(tune, {"chosen": 2.0, "narrow": 1.0})}
    jsonl.write(tmp_path / "tuning.jsonl", made, tune.PARTS)
    monkeypatch.setattr(sources, "RESULTS", tmp_path)
    from difftest.pages import speed

    text = speed.tuning(ROOT / "docs" / "speed.md")
    assert "| fused_add_rmsnorm bf16 4096 x 4096 | 2.00 | narrow | 1.00 | 2.000 |" in text
    assert json.loads((tmp_path / "tuning.jsonl").read_text().splitlines()[1])["part"] == "points"


class Prepared:
    """A launch that writes zeros, or ones where the configuration's name says so: there is no GPU."""

    wrong: object = None

    def __init__(self, plan, device, enable_pdl):
        self.plan = plan

    def launch(self, addresses, alignment, stream):
        byte = 1 if self.plan.config == Prepared.wrong else 0
        ctypes.memset(addresses[-1], byte, self.plan.rows * self.plan.width * 2)


@pytest.fixture
def without_a_gpu(tune, monkeypatch):
    monkeypatch.setattr(tune.launch, "target", lambda device: H200)
    monkeypatch.setattr(tune.launch, "load", lambda device, kernel: 0)
    monkeypatch.setattr(tune.launch, "resident_grid", lambda *_: (16, 1, 1))
    monkeypatch.setattr(tune.launch, "Prepared", Prepared)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    monkeypatch.setattr(Prepared, "wrong", None)


@pytest.mark.parametrize("case", ["fused_add_rmsnorm 4 4096", "rmsnorm 3 8192", "silu_and_mul 4 512"])
def test_a_point_is_measured_in_turns_and_its_result_holds_the_choice(tune, without_a_gpu, case):
    op, rows, width = case.split()
    point = tune.measure(timed(op, "bf16", int(rows), int(width), "cpu"), FakeTimer(), torch.device("cpu"))
    assert len(point["variants"]) > 3
    assert {each["us"] for each in point["variants"].values()} == {1.0}
    assert tune.held_to({"points": [point]}, H200) == []
    json.dumps(point)


def test_a_variant_with_other_bits_than_the_chosen_form_ends_the_run(tune, without_a_gpu):
    case = timed("rmsnorm", "bf16", 4, 4096, "cpu")
    Prepared.wrong = list(tune.variants(tune.choice(case, H200), case, H200).values())[2]
    with pytest.raises(click.ClickException, match="computes other bits"):
        tune.measure(case, FakeTimer(), torch.device("cpu"))

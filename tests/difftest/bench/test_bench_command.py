"""The command line of `bench`: its errors, its summary, and on a GPU a real, short run."""

import json
from contextlib import nullcontext

import pytest
import torch

from difftest.bench import command, host, run
from difftest.cli import main
from difftest.report import jsonl

from .made_up import FakeProvider, FakeTimer, document, point, row

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def status_of(*words):
    with pytest.raises(SystemExit) as end:
        main(["bench", *map(str, words)])
    return end.value.code


@pytest.mark.parametrize(
    "words",
    [
        ["--ops", "relu"],
        ["--peers", "cublas"],
        ["--shapes", "128"],
        ["--dtypes", "int8"],
        ["--device", "cpu"],
        ["--time-budget", "-1"],
        ["--json", "/no/such/folder/x.json"],
        ["--summary", "/no/such/file.json"],
    ],
)
def test_bad_usage_is_one_line_and_status_2(words, capsys):
    assert status_of(*words) == 2
    captured = capsys.readouterr()
    assert len(captured.err.strip().splitlines()) == 1
    assert captured.out == ""
    assert words[0] in captured.err


@NO_GPU
def test_without_a_gpu_it_is_one_line_and_status_3(capsys):
    assert status_of() == 3
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "CUDA device" in line


@pytest.mark.parametrize("name", ["bench.json", "bench.jsonl"])
def test_a_summary_needs_no_gpu(tmp_path, capsys, name):
    file = tmp_path / name
    made = document([point("rmsnorm", "bf16", 1, 4096, 10_000, {"numba": 1.0, "triton": 1.5})])
    jsonl.write(file, made, run.PARTS)
    assert status_of("--summary", file) == 0
    assert "0.667" in capsys.readouterr().out
    assert status_of("--summary", file, "--markdown") == 0
    assert "| 1 x 4096 | **1.00** | 1.50 | 0.667 |" in capsys.readouterr().out


def test_a_wrong_result_of_ours_is_status_1_and_of_a_peer_0(tmp_path):
    file = tmp_path / "bench.json"
    made = document([point("rmsnorm", "bf16", 1, 4096, 10_000, {"numba": 1.0, "triton": 1.5})])
    made["points"][0]["results"][1] = row("triton", 1.5, "wrong", "call 0: output is up to 9 ULP from W0")
    file.write_text(json.dumps(made))
    assert status_of("--summary", file) == 0
    made["points"][0]["results"][0] = row("numba", 1.0, "wrong", "call 0: output is not finite")
    file.write_text(json.dumps(made))
    assert status_of("--summary", file) == 1


def test_a_damaged_file_is_one_line_and_status_2(tmp_path, capsys):
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"schema": "numba-kernels/bench/1", "points": [{}], "host": []}))
    assert status_of("--summary", file) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_run_on_a_made_up_device_reports_and_leaves_its_file(tmp_path, monkeypatch, capsys):
    for name, value in {
        "resolve": lambda name, option: FakeProvider(name, fault="zero" if name == "bad" else None),
        "_device": lambda text: torch.device("cpu"),
        "GraphTimer": lambda device: FakeTimer({"numba": 2.0, "good": 3.0}),
    }.items():
        monkeypatch.setattr(command, name, value)
    monkeypatch.setattr(command.conditions, "card", lambda device: {"name": "made up"})
    monkeypatch.setattr(command.conditions, "clocks", lambda device: {"driver": "0"})
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "made up")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(host, "_PUBLIC", {})
    monkeypatch.setattr(host, "LOOP", 2)
    file = tmp_path / "bench.json"
    words = ["--ops", "fused_add_rmsnorm,rmsnorm", "--shapes", "2x64,3x5", "--peers", "good,bad"]
    assert status_of(*words, "--json", file, "--plots", tmp_path / "plots") == 0
    printed = capsys.readouterr().out
    assert "numba 2.00, good 3.00" in printed
    assert "wrong bad, fused_add_rmsnorm bf16 2 x 64" in printed
    found = json.loads(file.read_text())
    assert found["complete"]
    assert found["card"] == {"name": "made up"}
    assert found["clocks_after"] == {"driver": "0"}
    assert {row["status"] for point in found["points"] for row in point["results"]} == {"ok", "wrong"}
    assert (tmp_path / "plots" / "rmsnorm-bf16-width.svg").is_file()


@pytest.mark.gpu
def test_a_short_run_on_a_gpu_times_ours_and_torch(tmp_path):
    file = tmp_path / "bench.json"
    words = ("--ops", "fused_add_rmsnorm,rmsnorm,silu_and_mul", "--shapes", "16x4096,3x111", "--peers", "torch-rmsnorm")
    assert status_of(*words, "--json", file) == 0
    found = json.loads(file.read_text())
    assert found["complete"]
    assert len(found["points"]) == 6
    assert len(found["host"]) == 3
    for each in found["points"]:
        assert [row["status"] for row in each["results"]] == ["ok", "ok"]
        assert each["copy"]["gbps"] > 0

"""The command `exhaustive`, on a share: what it finds, says, keeps and goes on from."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from difftest import cli
from difftest.errors import BAD_USAGE, CONFORMS, DIFFERS, INTERRUPTED

from . import candidates

HERE = Path(candidates.__file__)
ONE = ("--ops", "silu_and_mul", "--dtypes", "bf16", "--device", "cpu")


def file(function):
    return ("exhaustive", "--candidate", f"{HERE}:{function}", *ONE)


@pytest.mark.slow
def test_twenty_planted_outputs_of_twenty_are_found(run):
    status, text, found = run(*file("silu_and_mul"), "--plants", 20)
    assert status == CONFORMS
    (task,) = found["tasks"]
    assert (task["planted"]["passes"], task["planted"]["found"]) == (20, 20)
    assert len({pair["output"] for pair in task["planted"]["pairs"]}) > 10
    assert task["pairs"] == task["judged"] + task["by_class"] + task["open"] == 2**20
    assert "1,048,576 of 4,294,967,296 pairs" in text
    assert "20 of 20 planted outputs found" in text


def test_one_wrong_pair_is_named_with_its_bits(run):
    status, text, found = run(*file("silu_and_mul_wrong_once"))
    assert status == DIFFERS
    (task,) = found["tasks"]
    assert task["wrong"] == 1
    assert task["worst"][0]["wrong"]
    assert task["worst"][0]["gate"] == "1 (0x3f80)"
    assert task["worst"][0]["up"] == "2 (0x4000)"
    assert "gate 1 (0x3f80), up 2 (0x4000)" in text


def test_another_contract_is_a_difference_and_its_own_conforms(run):
    status, _, found = run(*file("silu_and_mul_rounded"))
    assert status == DIFFERS
    assert 0.005 < found["tasks"][0]["wrong"] / found["tasks"][0]["judged"] < 0.5


def test_an_output_of_another_shape_is_a_difference_in_a_line(run):
    status, text, found = run(*file("silu_and_mul_of_other_shape"))
    assert status == DIFFERS
    assert "output is torch.bfloat16 (128, 1023) on cpu, not torch.bfloat16 (128, 1024) on cpu" in found["tasks"][0]["failure"]
    assert found["tasks"][0]["pairs"] == 0
    assert found["tasks"][0]["failure"] in " ".join(text.split())


def test_an_interrupt_keeps_what_was_found_and_a_later_run_goes_on_from_there(run, tmp_path, monkeypatch):
    state = tmp_path / "state.json"
    words = (*file("silu_and_mul_interrupted"), "--resume", state)
    status, text, found = run(*words)
    assert status == INTERRUPTED
    assert "interrupted" in text
    (task,) = found["tasks"]
    done = task["slices_done"]
    assert 0 < done < task["slices"]
    assert task["pairs"] == done * task["rows"] * task["width"]
    assert json.loads(state.read_text())["tasks"] == found["tasks"]

    mark = tmp_path / "mark"
    mark.touch()
    monkeypatch.setattr(Path, "with_name", lambda self, name: mark if name == "interrupted" else self.parent / name)
    status, _, rest = run(*words)
    assert status == CONFORMS
    _, _, whole = run(*file("silu_and_mul"))
    assert rest["tasks"][0]["counts"] == whole["tasks"][0]["counts"]
    assert rest["tasks"][0]["slices_done"] == task["slices"]


def test_the_state_of_another_run_is_refused(run, tmp_path):
    state = tmp_path / "state.json"
    assert run(*file("silu_and_mul"), "--resume", state)[0] == CONFORMS
    refused = CliRunner().invoke(cli.main, [*map(str, file("silu_and_mul")), "--resume", str(state), "--seed", "1"])
    assert refused.exit_code == BAD_USAGE
    assert "its seed 0, not 1" in refused.stderr


def test_no_time_is_no_pass(run):
    status, text, found = run(*file("silu_and_mul"), "--time-budget", 0)
    assert status == BAD_USAGE
    assert "nothing was judged" in text
    assert found["stopped"] == "out of time"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--share", 0), "--share: 0.0 is not allowed"),
        (("--share", 1.5), "--share: 1.5 is not allowed"),
        (("--ops", "rmsnorm"), "--ops: 'rmsnorm'"),
        (("--dtypes", "fp32"), "--dtypes: 'fp32'"),
        (("--contract", "X9"), "--contract: 'X9'"),
        (("--ops", "silu_and_mul", "--contract", "R0W0"), "--contract: 'R0W0'"),
        (("--plants", -1), "--plants: -1"),
        (("--device", "cuda:99"), "--device: cuda:99"),
    ],
)
def test_bad_usage_is_one_line(words, said):
    result = CliRunner().invoke(cli.main, ["exhaustive", *map(str, words)])
    assert result.exit_code in (BAD_USAGE, 3)
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_all_pairs_take_a_tenth_of_a_second_and_the_planted_one_is_found(run, dtype):
    status, _, found = run("exhaustive", "--ops", "silu_and_mul", "--dtypes", dtype, "--device", "cuda", "--plants", 5)
    (task,) = found["tasks"]
    assert status == CONFORMS
    assert task["pairs"] == 2**32
    assert task["planted"]["found"] == 5
    if "H200" in torch.cuda.get_device_name():
        assert task["device_seconds"] <= 0.1

"""`difftest --inputs`: real activations out of a file, checked by name, format and shape, and replayed bit for bit."""

import json

import ml_dtypes
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from difftest import cli
from difftest.cases.file import load

ADD = {"input": torch.randn(2, 3, 64), "residual": torch.randn(2, 3, 64), "weight": 1 + 0.3 * torch.randn(64)}
BF16 = {name: tensor.bfloat16() for name, tensor in ADD.items()}


@pytest.fixture
def activations(tmp_path):
    """Writes tensors to a .safetensors file; gives its path."""

    def write(tensors, name="x.safetensors"):
        save_file(tensors, tmp_path / name)
        return tmp_path / name

    return write


def test_every_operator_whose_inputs_are_in_the_file_is_run_on_them(difftest, activations):
    ran = difftest("--candidate", "torch", "--inputs", activations(BF16))
    assert ran.status == 0
    cases = {case["op"]: case for case in ran.json["cases"]}
    assert set(cases) == {"fused_add_rmsnorm", "gemma_fused_add_rmsnorm", "rmsnorm", "gemma_rmsnorm", *GATED}
    assert {(case["dtype"], tuple(case["lead"])) for case in cases.values()} == {("bf16", (2, 3))}
    assert cases["rmsnorm"]["width"] == 64
    assert cases["silu_and_mul"]["width"] == 32
    assert cases["rmsnorm"]["regime"] == "file"


GATED = {"silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "swigluoai_and_mul"}


def test_an_fp32_weight_beside_16_bit_rows_is_taken_as_it_is(difftest, activations):
    path = activations({**BF16, "weight": ADD["weight"]})
    ran = difftest("--candidate", "torch", "--ops", "rmsnorm", "--inputs", path)
    assert (ran.status, ran.json["cases"][0]["weight_dtype"]) == (0, "fp32")


def test_arrays_of_ml_dtypes_in_an_npz_file_are_bf16(difftest, tmp_path):
    gate, up = np.random.default_rng(0).standard_normal((2, 4, 32)).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", gate=gate, up=up)
    ran = difftest("--candidate", "torch", "--inputs", tmp_path / "x.npz")
    assert ran.status == 0
    assert {case["op"] for case in ran.json["cases"]} == GATED
    assert {case["dtype"] for case in ran.json["cases"]} == {"bf16"}
    assert "left out: rmsnorm takes input, weight" in " ".join(ran.out.split())


def test_a_failure_names_the_file_and_replays_from_it(difftest, broken, activations, tmp_path):
    path = activations(BF16)
    wrong = broken("drops_one_element", "rmsnorm")
    ran = difftest("--candidate", wrong, "--inputs", path)
    assert ran.status == 1
    (saved,) = (tmp_path / "failures").glob("*.json")
    record = json.loads(saved.read_text())
    assert record["given"]["file"] == str(path)
    assert len(record["given"]["sha256"]) == 64

    def replay(*words):
        return CliRunner().invoke(cli.main, ["replay", str(saved), "--failures", str(tmp_path / "again"), *words])

    again = replay()
    assert again.exit_code == 1
    assert record["reasons"][0][:40] in again.stdout
    assert replay("--candidate", "torch").exit_code == 0
    activations({**BF16, "input": BF16["input"] * 2})
    load.cache_clear()  # as in a process of its own
    other = replay()
    assert other.exit_code == 2
    assert "is another file than it was" in other.stderr
    assert len(other.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("tensors", "words", "said"),
    [
        (BF16, ["--ops", "rmsnorm", "--dtypes", "fp16"], "--dtypes: {} holds bf16, not fp16"),
        (BF16, ["--ops", "rmsnorm", "--widths", "3"], "--widths: {} holds rows of 64, not of 3"),
        (BF16, ["--rows", "3"], "--rows: with --inputs there is none"),
        (BF16, ["--regimes", "normal"], "--regimes: with --inputs there is none"),
        ({"weight": ADD["weight"]}, [], "--inputs: {} holds weight: the inputs of no operator"),
        ({"input": ADD["input"]}, ["--ops", "rmsnorm"], "--inputs: {}: rmsnorm takes input, weight; weight is missing"),
        ({"x": ADD["input"]}, [], "--inputs: {} holds 'x', which no operator takes; allowed: input, residual, weight, gate, up"),
        ({**BF16, "residual": ADD["residual"]}, ["--ops", "fused_add_rmsnorm"], "residual is torch.float32 (2, 3, 64), input is"),
    ],
)
def test_what_does_not_fit_is_one_line(difftest, activations, tensors, words, said):
    path = activations(tensors)
    ran = difftest("--candidate", "torch", "--inputs", path, *words)
    assert ran.status == 2
    assert said.format(path) in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["nothing.npz", "kernel.py", "folder.npz"])
def test_what_is_no_such_file_is_one_line(difftest, tmp_path, name):
    (tmp_path / "kernel.py").write_text("x = 1")
    (tmp_path / "folder.npz").mkdir()
    ran = difftest("--candidate", "torch", "--inputs", tmp_path / name)
    assert ran.status == 2
    assert ran.err.startswith("error: --inputs: ")
    assert len(ran.err.splitlines()) == 1


def test_a_matrix_takes_no_file(difftest, activations):
    ran = difftest("--candidate", "torch,torch-rmsnorm", "--inputs", activations(BF16))
    assert (ran.status, ran.err) == (2, "error: --inputs: a matrix has none; give one --candidate\n")

"""The matrix: pairs, contracts, crashes, the truth as judge, and the page made of it."""

import json
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner

from difftest import cli
from difftest.errors import UsageError
from difftest.matrix import analyse, file, page, tables
from difftest.providers.resolve import resolve
from difftest.verdict import truth
from reference.arithmetic import evaluate
from reference.contracts import contract
from reference.exact.oracle import correctly_rounded
from reference.operators import OPERATORS
from reference.operators.contract import check_contract

from .conftest import spelled

TAIL = ("--ops", "gelu_tanh_and_mul", "--dtypes", "bf16", "--widths", 64, "--rows", 64)
NORM = ("--ops", "rmsnorm", "--dtypes", "bf16", "--rows", 16, "--workers", 0, "--device", "cpu")


@pytest.fixture(scope="module")
def tail(tmp_path_factory):
    """The matrix of three implementations of the tanh-gelu, one of which cancels in the negative tail."""
    folder = tmp_path_factory.mktemp("tail")
    files = ("--json", folder / "m.json", "--markdown", folder / "m.md", "--plots", folder / "plots")
    words = ("--candidate", "torch,torch:S1,torch-rmsnorm", "--against", "torch,torch-rmsnorm", "--workers", 0, "--device", "cpu")
    result = CliRunner().invoke(cli.main, list(map(str, ("difftest", *words, *TAIL, *files))))
    assert result.exit_code == 0, result.output
    return result.stdout, json.loads((folder / "m.json").read_text()), folder


def test_every_pair_is_compared_once_and_each_is_identified(tail):
    _, found, _ = tail
    group = found["groups"][0]
    pairs = {(pair["a"], pair["b"]) for pair in group["pairs"]}
    assert pairs == {("torch", "torch-rmsnorm"), ("torch:S1", "torch"), ("torch:S1", "torch-rmsnorm")}
    follows = {name: member["follows"] for name, member in group["providers"].items()}
    assert follows == {"torch": "S0", "torch:S1": "S1", "torch-rmsnorm": "S1"}
    assert found["verdict"] == "conforms"
    assert all(pair["output"]["elements"] == 64 * 64 for pair in group["pairs"])


def test_the_reference_is_said_to_be_the_outlier_where_it_is(tail):
    out, found, _ = tail
    group = found["groups"][0]
    assert list(group["outliers"]) == ["torch-rmsnorm"]
    errors = {name: member["errors"] for name, member in group["providers"].items()}
    assert errors["torch-rmsnorm"]["max_steps"] > 5000
    assert errors["torch"]["max_steps"] <= 1
    assert "gelu_tanh_and_mul bf16: torch-rmsnorm is the outlier" in out
    gate = float(errors["torch-rmsnorm"]["worst"]["inputs"]["gate"].split()[0])
    assert -8 < gate < -4


def test_errors_are_bias_quantiles_and_shares(tail):
    _, found, _ = tail
    for member in found["groups"][0]["providers"].values():
        errors, own = member["errors"], member["errors_in_contract"]
        levels = [errors["quantiles"][str(level)] for level in truth.LEVELS]
        assert levels == sorted(levels)
        assert abs(errors["mean"]) <= levels[-1]
        assert own["right_share"] >= errors["right_share"]
    rounded = found["groups"][0]["providers"]["torch:S1"]
    assert rounded["errors"]["right_share"] < 0.9
    assert rounded["errors_in_contract"]["right_share"] > 0.95


def test_the_page_comes_from_the_json_alone(tail):
    _, found, folder = tail
    source = folder / "m.json"
    made = page.page(file.read("RESULT", source), str(source))
    assert made == (folder / "m.md").read_text()
    for text in (found["date"], found["environment"]["device"], "torch 2", "# Who rounds where", "| flashinfer |", "outlier"):
        assert text in made


def test_the_plots_are_one_picture_an_operator_and_dtype(tail):
    assert [file.name for file in (tail[2] / "plots").iterdir()] == ["errors-gelu_tanh_and_mul-bf16.svg"]


@pytest.mark.parametrize("text", ["[]", "{", '{"schema": "numba-kernels/difftest/1"}'])
def test_a_page_is_made_of_a_matrix_only(tmp_path, text):
    other = tmp_path / "other.json"
    other.write_text(text)
    with pytest.raises(UsageError, match="RESULT"):
        file.read("RESULT", other)


def test_a_candidate_that_raises_leaves_the_others_their_results(run):
    names = f"{spelled('rmsnorm_raises')},torch"
    status, out, found = run("difftest", "--candidate", names, "--against", "torch,torch-rmsnorm", "--widths", 32, *NORM)
    assert status == 1
    raising, *rest = found["groups"][0]["providers"].values()
    assert "raised RuntimeError: no kernel image" in json.dumps(raising["failed"])
    assert [member["follows"] for member in rest] == ["W0", "W0"]
    assert "no kernel image" in out


def test_a_crash_costs_the_call_it_happened_in_and_nothing_else(run):
    names = f"{spelled('rmsnorm_dies')},torch"
    words = ("--widths", "16,32", *NORM, "--workers", 2)
    status, _, found = run("difftest", "--candidate", names, "--against", "torch", *words)
    assert status == 1
    dying, whole = found["groups"][0]["providers"].values()
    (reason, *_) = dying["failed"]
    assert reason == "the process died (exit code -9) in this call"
    assert dying["failed"][reason] == ["rmsnorm bf16, 16 x 16", "rmsnorm bf16, identify"]
    assert whole["follows"] == "W0"
    (pair,) = found["groups"][0]["pairs"]
    assert pair["output"]["elements"] == 16 * 32


def test_a_claim_that_does_not_hold_has_status_1(run):
    names = f"{spelled('rmsnorm_other')},torch"
    status, out, found = run("difftest", "--candidate", names, "--against", "torch", "--widths", 32, *NORM)
    assert status == 1
    assert "claims W0; contract: W1" in out
    assert found["verdict"] == "differs"
    assert tables.contracts(found).rows[0][1] == "W1, claims W0"


def test_a_matrix_that_ended_early_says_so_beside_its_verdict(run):
    words = ("--candidate", "torch,torch-rmsnorm", "--against", "torch", *NORM, "--time-budget", 1e-9)
    status, out, found = run("difftest", *words)
    assert status == 3
    assert "out of time" in out
    assert sum(each["not_run"] for each in found["providers"].values()) > 0


def test_what_cannot_run_here_is_listed_with_its_reason(run):
    words = ("difftest", "--candidate", "quack,torch", "--against", "torch,torch-rmsnorm", "--widths", 32, *NORM)
    status, out, found = run(*words)
    assert status == 0
    assert "skipped: quack: quack runs on CUDA devices only" in out
    assert found["providers"]["quack"]["unavailable"]
    assert page.page(found, "x.json").count("quack runs on CUDA devices only") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--candidate", "torch,no-such"),
        ("--candidate", "torch,torch", "--against", "torch"),
        ("--candidate", "torch,numba", "--contract", "R1W1"),
        ("--candidate", "torch", "--markdown", "x.md"),
        ("--candidate", "torch,numba", "--html", "x.html"),
        ("--candidate", "torch,numba", "--widths", ""),
    ],
)
def test_a_matrix_that_makes_no_sense_is_bad_usage(run, words):
    assert run("difftest", *words)[0] == 2


# --- the truth ---------------------------------------------------------------------------------------------------------


def rows(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(*shape, generator=generator).bfloat16() for name, shape in (("input", (64, 64)), ("weight", (64,)))}


def test_the_right_value_is_within_half_an_ulp_and_without_bias():
    inputs = rows()
    right = correctly_rounded("rmsnorm", inputs, contract("rmsnorm"))
    found = truth.errors([(right.outputs["output"], right, inputs)])
    assert (found.right, found.max_steps, found.worst) == (found.elements, 0, None)
    assert 0.45 < found.largest <= 0.5
    assert abs(found.mean) < 0.02


def test_a_value_one_step_up_everywhere_is_a_bias_of_one_ulp():
    inputs = rows()
    inputs["input"], inputs["weight"] = inputs["input"].abs() + 0.01, inputs["weight"].abs() + 0.5
    right = correctly_rounded("rmsnorm", inputs, contract("rmsnorm"))
    above = (right.outputs["output"].view(torch.int16) + 1).view(torch.bfloat16)
    found = truth.errors([(above, right, inputs)])
    assert 0.95 < found.mean < 1.05
    assert (found.right, found.max_steps) == (0, 1)


def test_quantiles_are_of_the_magnitude_and_reach_the_largest():
    inputs = rows()
    right = correctly_rounded("rmsnorm", inputs, contract("rmsnorm"))
    values = right.outputs["output"].clone()
    values[5, 7] += 64 * torch.finfo(torch.bfloat16).eps * values[5, 7].abs()
    found = truth.errors([(values, right, inputs)])
    assert found.right == found.elements - 1
    assert found.quantiles["0.999"] <= 0.5 < found.largest
    assert found.worst.index == (5, 7)


def test_a_nan_is_a_class_of_its_own_and_an_outlier():
    inputs = rows()
    right = correctly_rounded("rmsnorm", inputs, contract("rmsnorm"))
    good = evaluate("rmsnorm", inputs, contract("rmsnorm"))["output"]
    bad = good.clone()
    bad[0, 0] = torch.nan
    found = {name: truth.errors([(values, right, inputs)]) for name, values in (("good", good), ("bad", bad))}
    assert (found["bad"].classes, found["good"].classes) == (1, 0)
    assert truth.outliers(found) == ["bad"]


def test_what_makes_an_outlier_is_said_with_its_worst_element_where_there_is_one():
    inputs = rows()
    right = correctly_rounded("rmsnorm", inputs, contract("rmsnorm"))
    values = right.outputs["output"].clone()
    values[5, 7] *= 2
    good, far = (truth.errors([(each, right, inputs)]) for each in (right.outputs["output"], values))
    said = truth.sentence("far", {"far": far, "good": good})
    assert said.startswith("far is the outlier: its error reaches ")
    assert f"it gives {far.worst.actual}, right is {far.worst.expected}" in said
    assert truth.sentence("far", {"far": replace(far, worst=None), "good": good}) == said.partition("; where")[0]


def test_of_outputs_that_are_all_nan_no_error_is_measured():
    inputs = rows()
    right = correctly_rounded("rmsnorm", inputs, contract("rmsnorm"))
    found = truth.errors([(torch.full_like(right.outputs["output"], torch.nan), right, inputs)])
    assert (found.classes, found.right, found.mean, found.largest) == (found.elements, 0, 0.0, 0.0)


def test_where_all_are_far_off_none_is_the_outlier():
    inputs = rows()
    right = correctly_rounded("rmsnorm", inputs, contract("rmsnorm"))
    far = truth.errors([(right.outputs["output"] * 2, right, inputs)])
    assert truth.outliers({"a": far, "b": far}) == []


@pytest.mark.parametrize("op", OPERATORS)
def test_a_contract_found_from_outputs_is_one_of_its_operator(op):
    which = OPERATORS[op]
    identified = {"weight_bias": which.weight_bias, "bias_in_fp32": False, "eps": 1e-5 if which.vectors else None}
    found = analyse._own(resolve("torch"), op, {"follows": which.codes[-1], "identified": identified})
    check_contract(which, found)
    assert (found.code, found.bias_in_fp32) == (which.codes[-1], False)
    assert dict(found.parameters) == dict(contract(op).parameters)

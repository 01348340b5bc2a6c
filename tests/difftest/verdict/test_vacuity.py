"""Nothing compared is no pass, and neither is a case that a trivial mutant passes."""

import pytest
import torch

from difftest.verdict.vacuity import survivors
from reference.contracts import contract
from reference.operators import OPERATORS

TORCH = ("--candidate", "torch", "--cases", 0)


def test_rows_scaled_until_eps_decides_let_a_kernel_without_the_mean_square_pass():
    """Inputs of size 1 / (2 D) at D = 8192: their mean square is a thousandth of eps."""
    generator = torch.Generator().manual_seed(0)
    rows = (torch.randn(4, 8192, generator=generator) / (2 * 8192)).bfloat16()
    inputs = {"input": rows, "weight": torch.full((8192,), 1.5).bfloat16()}
    kept = survivors(OPERATORS["rmsnorm"], inputs, contract("rmsnorm", eps=1e-2))
    assert kept == ["leaves the mean square out"]
    assert survivors(OPERATORS["rmsnorm"], {**inputs, "input": rows * 2 * 8192}, contract("rmsnorm")) == []


def test_zero_rows_of_numbers_let_a_null_kernel_pass_and_are_marked(difftest):
    run = difftest(*TORCH, "--ops", "rmsnorm", "--dtypes", "bf16", "--widths", 64)
    zeros = [case for case in run.json["cases"] if case["regime"] == "zeros"]
    assert all("returns zeros" in case["vacuous"] and not case["evidence"] for case in zeros)
    assert run.status == 0
    assert "without evidence: a trivial mutant passes too" in run.out


def test_zeros_alone_are_no_pass(difftest):
    run = difftest(*TORCH, "--ops", "rmsnorm", "--dtypes", "bf16", "--widths", 64, "--regimes", "zeros")
    assert run.status == 2
    assert run.json["verdict"] == "no evidence"


@pytest.mark.slow
def test_no_rows_are_no_pass(difftest):
    run = difftest(*TORCH, "--rows", 0)
    assert run.status == 2
    assert run.json["verdict"] == "no evidence"
    assert "nothing was compared" in run.out


def test_one_operator_without_evidence_spoils_the_pass_of_the_others(difftest):
    run = difftest(*TORCH, "--widths", 64, "--regimes", "zeros,gate_sweep", "--dtypes", "fp32")
    assert run.status == 2
    assert "rmsnorm" in run.out.splitlines()[-1]


def test_no_time_is_no_pass(difftest):
    run = difftest(*TORCH, "--time-budget", 0)
    assert run.status == 2
    assert run.json["not_run"] > 0
    assert "out of time" in run.out


def test_a_reference_that_is_missing_is_listed_with_its_reason_and_is_no_pass(difftest):
    run = difftest(*TORCH, "--against", "flashinfer", "--ops", "rmsnorm", "--widths", 64)
    assert run.status == 3
    assert run.json["skipped"]
    assert all(skip["against"] == "flashinfer" and skip["reason"] for skip in run.json["skipped"])
    assert "skipped flashinfer" in run.out


def test_a_missing_reference_beside_one_that_is_there_is_listed_and_does_not_spoil_the_pass(difftest):
    run = difftest(*TORCH, "--against", "torch,flashinfer", "--ops", "rmsnorm", "--widths", 64)
    assert run.status == 0
    assert {case["against"] for case in run.json["cases"]} == {"torch"}
    assert "skipped flashinfer" in run.out


def test_a_reference_of_another_contract_is_named_and_its_distances_are_no_fault(difftest):
    words = ("--ops", "fused_add_rmsnorm", "--dtypes", "bf16", "--widths", 64)
    run = difftest(*TORCH, *words, "--against", "torch-rmsnorm")
    assert run.status == 0
    assert sum(case["outputs"]["output"]["mismatches"] for case in run.json["cases"]) > 0
    assert "torch-rmsnorm follows R1W0" in run.out


def test_a_contract_that_a_candidate_cannot_follow_is_a_skip_with_the_reason(difftest):
    words = ("--ops", "fused_add_rmsnorm", "--dtypes", "bf16", "--widths", 64, "--cases", 0)
    run = difftest("--candidate", "torch-rmsnorm", *words, "--contract", "R0W1")
    assert run.status == 3
    assert "R0W1" in run.json["skipped"][0]["reason"]

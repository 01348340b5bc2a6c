"""The command `identify`: its last line, its exit status, its JSON."""

import pytest

from .conftest import spelled


def test_the_last_line_names_the_contract_and_the_status_is_0(run):
    words = ("identify", "--op", "fused_add_rmsnorm", "--candidate", "torch:R1W1", "--widths", "3,111", "--device", "cpu")
    status, out, found = run(*words)
    assert status == 0
    assert out.splitlines()[-1] == "contract: R1W1 (eps 1e-06 as passed; weight bias 0)"
    assert (found["contract"], found["verdict"], found["eps"], found["eps_ignored"]) == ("R1W1", "found", 1e-6, False)
    assert found["codes"]["R1W1"]["against"] == 0
    assert found["codes"]["R0W0"]["against"] > found["margin"]
    assert found["environment"]["device"].startswith("cpu")


def test_the_operator_of_a_file_is_what_its_function_says(run):
    status, out, _ = run("identify", "--candidate", spelled("norms", "gemma_rmsnorm_w0"), "--widths", 3, "--device", "cpu")
    assert status == 0
    assert out.splitlines()[-1] == "contract: W0 (eps 1e-06 as passed; weight bias 1 in fp32)"


def test_none_has_status_1_and_a_last_line_that_says_none(run):
    words = ("--candidate", spelled("wrong_norms", "rmsnorm_rounds_rstd"), "--widths", 111, "--dtype", "fp16")
    status, out, found = run("identify", "--device", "cpu", *words)
    assert status == 1
    assert out.splitlines()[-1].startswith("contract: none (")
    assert found["contract"] is None
    assert found["first_contradiction"]


def test_a_contract_can_be_asked_for(run):
    words = ("identify", "--op", "silu_and_mul", "--candidate", "numba", "--contract", "S1", "--widths", 3, "--device", "cpu")
    status, out, _ = run(*words)
    assert status == 0
    assert out.splitlines()[-1] == "contract: S1 (silu in fp32)"


def test_widths_that_cannot_tell_have_status_2(run):
    status, out, _ = run("identify", "--op", "rmsnorm", "--candidate", "torch", "--widths", 1, "--device", "cpu")
    assert status == 2
    assert out.splitlines()[-1].startswith("contract: undecided (")


def test_the_same_seed_gives_the_same_counts(run):
    words = ("identify", "--op", "rmsnorm", "--candidate", "torch", "--widths", 3, "--device", "cpu", "--seed")
    first, second, other = (run(*words, seed)[2]["codes"] for seed in (7, 7, 8))
    assert first == second != other


def test_the_order_of_the_sum_is_part_of_it_and_can_be_asked_for_alone_or_left_out(run):
    words = ("identify", "--op", "rmsnorm", "--candidate", "torch-rmsnorm", "--widths", 40, "--device", "cpu", "--order")
    status, out, both = run(*words, "with")
    assert status == 0
    assert "Order of the sum at width 40 [" in out
    assert out.splitlines()[-1].startswith("contract: W0 (")
    status, out, alone = run(*words, "only")
    assert status == 0
    assert "contract" not in alone
    assert alone["orders"] == both["orders"]
    assert alone["orders"][0]["batches"] == {"1": "same", "16": "same"}
    status, out, without = run(*words, "no")
    assert (status, "Order" in out, "orders" in without) == (0, False, False)


def test_an_order_that_can_not_be_seen_has_status_2_where_nothing_else_was_asked(run):
    words = ("--candidate", "torch", "--op", "rmsnorm", "--dtype", "fp16", "--widths", 40, "--device", "cpu", "--order", "only")
    status, out, found = run("identify", *words)
    assert status == 2
    assert "not observable: with a negative eps it raised ValueError" in out
    assert found["orders"][0]["state"] == "not observable"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--candidate", "torch"), 2),
        (("--op", "rmsnorm,silu_and_mul", "--candidate", "torch"), 2),
        (("--op", "rmsnorm", "--candidate", "no-such"), 2),
        (("--op", "rmsnorm", "--candidate", "torch", "--dtype", "bf16,fp16"), 2),
        (("--op", "rmsnorm", "--candidate", "torch", "--widths", "0"), 2),
        (("--op", "rmsnorm", "--candidate", "torch", "--contract", "S1"), 2),
        (("--op", "rmsnorm", "--candidate", "torch-rmsnorm", "--contract", "W1"), 2),
        (("--op", "rmsnorm", "--candidate", "quack", "--device", "cpu"), 3),
        (("--op", "silu_and_mul", "--candidate", "torch", "--order", "only"), 2),
    ],
)
def test_bad_usage_is_2_and_a_missing_library_3(run, words, status):
    assert run("identify", *words)[0] == status


@pytest.mark.parametrize("leave", ["sys.exit(0)", "os._exit(0)"])
def test_a_candidate_that_ends_the_process_with_0_follows_no_contract(run, tmp_path, leave):
    file = tmp_path / "leaves.py"
    file.write_text(f"import os, sys\n\ndef rmsnorm(input, weight, eps):\n    {leave}\n")
    status, out, _ = run("identify", "--candidate", f"{file}:rmsnorm", "--widths", 3, "--device", "cpu")
    assert status == 1
    assert out.splitlines()[-1] == "contract: none (at width 3 it raised SystemExit: 0)"

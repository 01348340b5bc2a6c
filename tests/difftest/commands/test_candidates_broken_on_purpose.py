"""Each fault from the field, as a candidate that has it: the tester must find it, and say what is wrong."""

import re
import shlex

import pytest

SMALL = ("--widths", "3,64,111", "--cases", 0)


def some(run, key):
    """The values of a key over the cases that differ."""
    return [case[key] for case in run.json["cases"] if case["verdict"] == "differs"]


@pytest.mark.parametrize(
    "function",
    [
        "fused_add_rmsnorm",
        "swigluoai_and_mul",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("rmsnorm", "silu_and_mul")),
    ],
)
def test_what_is_right_conforms(difftest, broken, function):
    run = difftest("--candidate", broken("plain", function), *SMALL)
    assert run.status == 0, run.out
    assert run.json["verdict"] == "conforms"


BROKEN = [
    ("swapped_gate_and_up", "silu_and_mul", "no fp32 evaluation of S0 rounds to"),
    ("residual_not_written_back", "fused_add_rmsnorm", "residual:"),
    ("mean_over_padded_width", "rmsnorm", "rstd is off"),
    ("eps_outside_the_root", "rmsnorm", "rstd is off"),
    ("eps_from_the_dtype", "rmsnorm", "rstd is off"),
    ("eps_ten_times_larger", "rmsnorm", "rstd is off"),
    ("eps_in_half_precision", "rmsnorm", "rstd is off"),
    ("squares_in_half_precision", "rmsnorm", "rstd is off"),
    ("last_row_skipped", "rmsnorm", "NaN for a number"),
    ("last_row_skipped", "fused_add_rmsnorm", "residual:"),
    ("returns_zeros", "rmsnorm", "rstd is off"),
    ("writes_past_the_row", "fused_add_rmsnorm", "residual: 1 element overwritten, the first 1 past the end of row"),
    ("mutates_the_weight", "rmsnorm", "weight:"),
    ("mutates_the_input", "rmsnorm", "input:"),
    ("returns_its_input", "rmsnorm", "output shares memory with input"),
    ("one_nan", "rmsnorm", "NaN for a number"),
    ("clamp_deletes_nan", "rmsnorm", "number for NaN"),
    ("inf_for_finite", "rmsnorm", "Inf for finite"),
    ("finite_for_inf", "silu_and_mul", "finite for Inf"),
    ("weight_bytes_reinterpreted", "rmsnorm", "fp32 weight"),
    ("ignores_the_stride", "rmsnorm", "elements between rows"),
    ("drops_one_element", "rmsnorm", "rstd is off"),
    ("rounds_the_sum_first", "fused_add_rmsnorm", "no single rstd explains the row"),
    ("raises", "rmsnorm", "raised ValueError: hidden size must be a multiple of 8"),
    ("clamps_the_residual", "fused_add_rmsnorm", "residual:"),
    ("positive_zeros", "fused_add_rmsnorm", "residual:"),
    ("cleans_the_weight", "rmsnorm", "number for NaN"),
    ("casts_the_weight", "rmsnorm", "fp32 weight"),
    ("alpha_hard_coded", "swigluoai_and_mul", "S0, alpha 1, limit"),
    ("limit_hard_coded", "swigluoai_and_mul", "limit 2.00854, "),
    ("comes_back_wider", "rmsnorm", "output has dtype torch.float32, not torch.bfloat16"),
]
BEYOND_FP16 = ("finite_for_inf", "inf_for_finite")  # faults that bf16's range hides


@pytest.mark.parametrize(("file", "function", "said"), BROKEN)
def test_a_broken_candidate_is_found_and_its_fault_is_named(difftest, broken, file, function, said):
    words = ("--dtypes", "fp16" if file in BEYOND_FP16 else "bf16", "--widths", 64, "--cases", 0)
    is_found(difftest("--candidate", broken(file, function), *words), said)


@pytest.mark.slow
@pytest.mark.parametrize(("file", "function", "said"), BROKEN)
def test_a_broken_candidate_is_found_among_more_widths_and_dtypes(difftest, broken, file, function, said):
    is_found(difftest("--candidate", broken(file, function), "--dtypes", "bf16,fp16", *SMALL), said)


def is_found(run, said):
    """The run says that the candidate differs, and what of."""
    assert run.status == 1
    assert run.json["verdict"] == "differs"
    reasons = " ".join(reason for reasons in some(run, "reasons") for reason in reasons)
    assert said in run.out + reasons


def test_the_command_in_the_report_finds_a_hard_coded_limit_again(difftest, broken):
    """Its worst case is of no grid, and of another regime than the other layouts."""
    words = ("--dtypes", "bf16", "--widths", "3,64", "--cases", 0)
    run = difftest("--candidate", broken("limit_hard_coded", "swigluoai_and_mul"), *words)
    (line,) = [line for line in run.out.splitlines() if "and its neighbours: " in line]
    seed = int(re.search(r"^Worst case: .* seed (\d+)", run.out, re.MULTILINE)[1])
    again = difftest(*shlex.split(line.partition("and its neighbours: ")[2])[3:])
    found = [case for case in again.json["cases"] if case["seed"] == seed and case["verdict"] == "differs"]
    assert any(case in run.json["cases"] for case in found)


def test_a_right_norm_is_within_one_ulp_of_the_reference_in_both_outputs(difftest, broken):
    run = difftest("--candidate", broken("plain", "fused_add_rmsnorm"), "--dtypes", "bf16,fp16", *SMALL)
    for case in run.json["cases"]:
        assert case["outputs"]["output"]["max_ulp"] <= 1
        assert case["outputs"]["residual"]["mismatches"] == 0


def test_eps_faults_show_at_small_mean_squares_and_not_on_unit_normal_rows(difftest, broken):
    run = difftest("--candidate", broken("eps_ten_times_larger", "rmsnorm"), "--dtypes", "bf16", "--widths", 4096, "--rows", 4)
    verdicts = {case["regime"]: case["verdict"] for case in run.json["cases"]}
    assert verdicts["small_mean_square"] == "differs"
    assert verdicts["square_overflow"] == "conforms"


def test_the_eps_of_the_dtype_shows_at_width_32(difftest, broken):
    words = ("--widths", 32, "--rows", 4, "--regimes", "small_mean_square", "--dtypes", "bf16")
    assert difftest("--candidate", broken("eps_from_the_dtype", "rmsnorm"), *words).status == 1


def test_squares_beyond_half_precision_are_found_in_the_regime_made_for_them(difftest, broken):
    words = ("--widths", 64, "--rows", 4, "--regimes", "square_overflow", "--dtypes", "fp16")
    assert difftest("--candidate", broken("squares_in_half_precision", "rmsnorm"), *words).status == 1


def test_a_dropped_element_is_found_at_width_4096(difftest, broken):
    words = ("--widths", 4096, "--rows", 8, "--regimes", "normal", "--dtypes", "bf16", "--cases", 0)
    run = difftest("--candidate", broken("drops_one_element", "rmsnorm"), *words)
    assert run.status == 1
    assert run.json["cases"][0]["outputs"]["output"]["max_ulp"] == 1  # every published tolerance passes it


def test_a_single_nan_is_one_mismatch_of_its_own_class_and_no_ulp(difftest, broken):
    words = ("--widths", 64, "--rows", 4, "--regimes", "normal", "--dtypes", "bf16", "--cases", 0)
    (case,) = difftest("--candidate", broken("one_nan", "rmsnorm"), *words).json["cases"]
    output = case["outputs"]["output"]
    assert output["classes"] == {"NaN for a number": 1}
    assert output["mismatches"] - sum(n for ulp, n in output["histogram"].items() if ulp != "0") == 1
    assert sum(output["histogram"].values()) == output["elements"] - 1


def test_inf_for_a_finite_value_is_no_match_and_no_ulp(difftest, broken):
    words = ("--widths", 64, "--rows", 4, "--regimes", "normal", "--dtypes", "fp16", "--cases", 0)
    (case,) = difftest("--candidate", broken("inf_for_finite", "rmsnorm"), *words).json["cases"]
    assert case["verdict"] == "differs"
    assert case["outputs"]["output"]["classes"].keys() == {"Inf for finite"}


def test_a_finite_value_for_inf_is_no_match_and_no_ulp(difftest, broken):
    words = ("--widths", 64, "--rows", 4, "--regimes", "square_overflow", "--dtypes", "fp16", "--cases", 0)
    (case,) = difftest("--candidate", broken("finite_for_inf", "silu_and_mul"), *words).json["cases"]
    assert case["verdict"] == "differs"
    output = case["outputs"]["output"]
    assert output["classes"].keys() == {"finite for Inf"}
    assert output["mismatches"] == output["classes"]["finite for Inf"] == output["elements"] - output["histogram"]["0"]


def test_the_mutated_residual_and_output_are_compared_apart(difftest, broken):
    run = difftest("--candidate", broken("rounds_the_sum_first", "fused_add_rmsnorm"), "--dtypes", "bf16", *SMALL)
    total = {name: sum(case["outputs"][name]["mismatches"] for case in run.json["cases"]) for name in ("output", "residual")}
    assert total["residual"] == 0
    assert total["output"] > 0


def test_a_candidate_conforms_to_the_contract_that_it_follows(difftest, broken):
    candidate = broken("rounds_the_sum_first", "fused_add_rmsnorm")
    assert difftest("--candidate", candidate, "--dtypes", "bf16", "--contract", "R1W0", *SMALL).status == 0


def test_a_skipped_row_is_found_though_the_allocator_last_held_the_right_answer(difftest, broken):
    words = ("--widths", 64, "--rows", 4, "--regimes", "normal", "--dtypes", "bf16", "--cases", 0)
    candidate = broken("last_row_skipped", "rmsnorm")
    for _ in range(3):  # the same case again: the answer of the last run is in the freed memory
        run = difftest("--candidate", candidate, *words)
        assert run.status == 1

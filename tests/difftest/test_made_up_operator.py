"""An operator of pairs, with parameters, switches and a third S code, passes through the tester by its declaration alone."""

import gc
import json
from functools import partial
from pathlib import Path

import mpmath
import pytest
import torch
from click.testing import CliRunner

from difftest import cli
from difftest.cases import Case, Request, generate, regimes
from difftest.cases.ledger import ledger, moved
from difftest.report.terminal import describe
from reference.contracts import contract
from reference.exact import terms
from reference.exact.activations import (
    ACTIVATIONS,
    Activation,
    sigmoid_factor,
    sigmoid_fp32_error,
    sigmoid_to_any_precision,
)
from reference.formats import FORMATS
from reference.operators import OPERATORS
from reference.trivial import trivial_mutants

from .made_up import LIMITED, limited_silu_and_mul

NAME = LIMITED.name
HERE = Path(__file__).parent / "made_up.py"
SCALED_SILU = Activation(
    lambda gate, alpha: sigmoid_factor(alpha * gate),
    partial(sigmoid_fp32_error, 1.0),
    None,
    lambda gate, alpha: sigmoid_to_any_precision(mpmath.mpf(alpha) * gate),
)
SMALL = (
    "--in-process",
    "--ops",
    NAME,
    "--dtypes",
    "bf16",
    "--widths",
    "3,64",
    "--cases",
    4,
)  # the operator is known to this process alone


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    """The operator is one of the operators."""
    (known,) = gc.get_referents(OPERATORS)
    monkeypatch.setitem(known, NAME, LIMITED)
    monkeypatch.setattr(terms, "ACTIVATIONS", {**ACTIVATIONS, LIMITED.made_of: SCALED_SILU})


def spelled(function):
    return f"{HERE}:{function}"


def drawn(regime, rows=4, width=64, dtype="bf16", **numbers):
    case = Case(NAME, dtype, (rows,), width, regime, 1, contract(NAME, **numbers))
    return LIMITED.split(case.inputs())


def test_a_case_survives_json_with_its_parameters():
    cases = list(generate(Request({NAME: contract(NAME, "S2", alpha=1.5, limit=3.0)}, ["bf16", "fp32"], [3, 64], extra=6)))
    assert {"switches", "gate_sweep", "normal"} <= {case.regime for case in cases}
    assert not {"small_mean_square", "cancellation"} & {case.regime for case in cases}
    for case in cases:
        record = json.loads(json.dumps(case.to_json()))
        if case.origin == "grid":
            assert (record["contract"], record["alpha"], record["limit"]) == ("S2", 1.5, 3.0)
        assert Case.from_json(record) == case
    assert describe(cases[0]).endswith("S2, alpha 1.5, limit 3")


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_switches_regime_reaches_both_sides_of_every_clamp_and_what_is_no_number(dtype):
    values = drawn("switches", rows=8, dtype=dtype, limit=3.0)
    step = torch.finfo(FORMATS[dtype].torch).eps * 2  # above 2; below 4
    for role, points in (("gate", (3.0,)), ("up", (3.0, -3.0))):
        found = set(values[role].flatten().tolist())
        assert {point + side for point in points for side in (-step, 0.0, step)} <= found
        assert {float("inf"), float("-inf")} <= found
        assert values[role].isnan().any()
    pairs = set(zip(values["gate"].flatten().tolist(), values["up"].flatten().tolist(), strict=True))
    assert {(3.0, 3.0), (3.0, -3.0)} <= pairs


def test_a_clamp_at_zero_has_the_smallest_numbers_beside_it():
    gates = drawn("switches", limit=0.0)["gate"].flatten()
    smallest = 2.0**-133
    assert {-smallest, 0.0, smallest} <= set(gates.tolist())


def test_only_operators_that_switch_get_the_regime():
    having = {op for op in OPERATORS if "switches" in regimes.names(OPERATORS[op])}
    assert having == {"swigluoai_and_mul", NAME}


def test_the_trivial_mutants_follow_from_the_formula():
    inputs = LIMITED.assemble({"gate": torch.tensor([[1.0, 9.0]]), "up": torch.tensor([[2.0, -9.0]])})
    mutants = trivial_mutants(LIMITED, inputs, contract(NAME))
    assert {name: each["output"].tolist() for name, each in mutants.items()} == {
        "returns zeros": [[0.0, 0.0]],
        "returns the gate": [[1.0, 9.0]],
        "leaves the activation out": [[3.0, 7.0 * -6.0]],
    }


def test_the_ledger_counts_gate_and_up_and_the_output():
    assert moved(NAME, 8, 64, 2) == 3 * 8 * 64 * 2
    assert [form.contract for form in ledger(NAME, 8, 64, 2).forms] == ["S0"]


def test_a_candidate_that_computes_it_conforms_and_the_saved_run_says_with_what(difftest):
    run = difftest("--candidate", spelled("limited_silu_and_mul"), *SMALL)
    assert run.status == 0, run.out
    assert {(case["alpha"], case["limit"]) for case in run.json["cases"]} >= {(1.702, 7.0), (1.0, 7.0), (1.702, 2.0)}
    assert difftest("--candidate", spelled("limited_silu_and_mul_eager"), *SMALL, "--contract", "S2").status == 0


@pytest.mark.parametrize("function", ["eager", "unlimited", "halves", "deletes_nan"])
def test_what_computes_something_else_differs(difftest, function):
    run = difftest("--candidate", spelled(f"limited_silu_and_mul_{function}"), *SMALL)
    assert run.status == 1
    worst = next(case for case in run.json["cases"] if case["reasons"] and case["outputs"] and case["outputs"]["output"]["worst"])
    assert list(worst["outputs"]["output"]["worst"]["inputs"]) == ["gate", "up"]


def test_without_the_regime_of_its_switches_a_clamp_that_deletes_nan_would_pass(difftest):
    words = (
        "--candidate",
        spelled("limited_silu_and_mul_deletes_nan"),
        *SMALL,
        "--regimes",
        "normal,gate_sweep,saturating_gates",
    )
    assert difftest(*words).status == 0


@pytest.mark.parametrize(("function", "code"), [("limited_silu_and_mul", "S0"), ("limited_silu_and_mul_eager", "S2")])
def test_identify_names_its_contract_and_the_parameters(function, code):
    words = ["identify", "--op", NAME, "--candidate", spelled(function), "--widths", "64", "--device", "cpu"]
    result = CliRunner().invoke(cli.main, words)
    assert result.stdout.splitlines()[-1] == f"contract: {code} (alpha 1.702 as passed; limit 7 as passed)"


def test_the_worst_elements_inputs_are_those_of_its_pair(difftest):
    run = difftest(
        "--candidate", spelled("limited_silu_and_mul_unlimited"), *SMALL[:5], "--widths", 64, "--regimes", "saturating_gates"
    )
    worst = next(case for case in run.json["cases"] if case["reasons"])
    case, element = Case.from_json(worst), worst["outputs"]["output"]["worst"]
    inputs = case.inputs()
    values = LIMITED.split(inputs)
    index = tuple(element["index"])
    assert element["inputs"]["gate"].startswith(f"{values['gate'][index].item():.9g} ")
    right = limited_silu_and_mul(inputs["input"], 1.702, 7.0)[index].item()
    assert element["expected"].startswith(f"{right:.9g} ")

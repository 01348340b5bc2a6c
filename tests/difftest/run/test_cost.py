"""A run of minutes says so before it begins, and how to end it early; a short one says nothing."""

from dataclasses import replace

from difftest.cases import Case
from difftest.run.cost import announcement, seconds
from difftest.run.session import Session
from reference.contracts import contract

SMALL = Case("rmsnorm", "bf16", (4,), 64, "normal", 1, contract("rmsnorm"))
LARGE = replace(SMALL, lead=(70_000,), width=4096)


def test_a_short_run_says_nothing():
    assert announcement(Session([SMALL] * 100, "torch", ["torch"])) == ""


def test_a_run_of_minutes_says_how_long_and_how_to_end_it_early():
    said = announcement(Session([LARGE] * 10, "torch", ["torch"]))
    assert said.startswith("this will take about 24 minutes: 10 cases of 2,867 million elements; --time-budget SECONDS")


def test_more_elements_references_and_kernels_to_compile_cost_more_and_workers_and_a_budget_less():
    plain = seconds(Session([LARGE], "torch", ["torch"]))
    assert seconds(Session([LARGE] * 2, "torch", ["torch"])) > plain
    assert seconds(Session([LARGE], "torch", ["torch", "torch-rmsnorm"])) > plain
    assert seconds(Session([LARGE], "numba", ["torch"])) > plain
    assert seconds(Session([LARGE], "torch", ["torch"], workers=2)) < plain
    assert seconds(Session([LARGE], "torch", ["torch"], time_budget=1.0)) == 1.0

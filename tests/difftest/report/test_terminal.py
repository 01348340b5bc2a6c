"""What a run prints: its comparisons add up, its histograms are of one family each, an outlier is named with the truth."""

import re

import pytest
import torch
from rich.console import Console

from difftest.cases.case import Case
from difftest.report import accounts, histograms, summary, terminal
from difftest.report.worst import headline
from difftest.run.check import Result, Skip, check
from difftest.run.session import Outcome
from difftest.verdict.compare import Comparison
from difftest.verdict.worst import Element, Truth
from difftest.wording import compact
from reference.contracts import contract
from reference.providers.torch_plain import TorchPlain

WORDS = ("--widths", 64, "--cases", 0, "--strength", 0, "--candidate", "torch", "--ops", "rmsnorm,gelu_and_mul")


def added_up(text):
    """The total and the terms of the line that adds the comparisons up."""
    (line,) = re.findall(r"^([\d,]+) comparisons? = (.*)$", text, re.MULTILINE)
    total, *terms = [int(number.replace(",", "")) for number in (line[0], *re.findall(r"[\d,]+", line[1]))]
    return total, terms


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--against", "torch,torch-rmsnorm,quack"),
        ("--contract", "W1"),
        ("--time-budget", 0.05, "--against", "torch,torch-rmsnorm"),
    ],
)
def test_the_comparisons_of_a_run_add_up(difftest, more):
    out = difftest(*WORDS, *more).out
    total, terms = added_up(out)
    cases, references = int(re.search(r"([\d,]+) cases", out)[1]), len(re.search(r"against (.*): ", out)[1].split(", "))
    assert sum(terms) == total == cases * references
    assert len(terms) > 1


def test_the_comparisons_of_a_run_that_differs_add_up(difftest, broken):
    out = difftest("--candidate", broken("drops_one_element", "rmsnorm"), "--widths", "64", "--cases", 0, "--strength", 0).out
    total, terms = added_up(out)
    assert sum(terms) == total
    differing = int(re.search(r"(\d+) differ", out)[1])
    assert f"differs: {differing} of {total} comparisons" in out.splitlines()[-1]


def test_a_case_that_was_not_run_counts_once_for_each_reference():
    case = Case("rmsnorm", "bf16", (4,), 64, "normal", 0, contract("rmsnorm"))
    outcome = Outcome(skips=[Skip(case, "b", "no b")], not_run=3, references=2)
    assert accounts.accounts(outcome) == {"skipped": 1, "not run": 6}
    assert accounts.sentence(outcome) == "7 comparisons = 1 skipped + 6 not run"


def found(op, dtype="fp32", width=64, regime="normal", reference=None):
    case = Case(op, dtype, (4,), width, regime, 1, contract(op))
    return check(case, TorchPlain(), [reference or TorchPlain()])[0]


def test_histograms_are_added_up_by_family_and_dtype():
    results = [found(op, dtype) for op in ("rmsnorm", "gemma_rmsnorm", "silu_and_mul") for dtype in ("fp32", "bf16")]
    titles = {each.title: each.total.elements for each in histograms.pooled(summary.groups(results))}
    one = 4 * 64
    assert titles == {"2 norms fp32": 2 * one, "silu_and_mul fp32": one, "2 norms bf16": 2 * one, "silu_and_mul bf16": one}


class Off(TorchPlain):
    """Right but for one element, which is 2^`steps` values too large."""

    steps = 0

    def function(self, op, contract=None):
        right = super().function(op, contract)

        def wrong(*arguments):
            output = right(*arguments)
            output.view(torch.int32)[1, 5] += 1 << self.steps
            return output

        return wrong


def printed(result):
    screen = Console(width=200, highlight=False)
    with screen.capture() as capture:
        terminal.results(screen, Outcome([result]), {})
    return capture.get()


def distances(text):
    """How far both sides are from the correctly rounded value, in ULP."""
    number = r"([-+]?[\d,]+) ULP"
    found = re.search(rf"correctly rounded .*: candidate {number} from it, torch {number}$", text, re.MULTILINE)
    return [int(each.replace(",", "")) for each in found.groups()]


def test_a_reference_that_is_far_from_the_truth_is_named_with_the_truth():
    Off.steps = 20
    text = printed(found("silu_and_mul", reference=Off()))
    assert "Farthest from torch, which is the outlier: silu_and_mul fp32" in text
    candidate, off = distances(text)
    assert abs(candidate) <= 4
    assert abs(off - candidate) == 1 << 20


@pytest.mark.parametrize(("dtype", "named"), [("fp32", "which is the outlier"), ("bf16", "which follows S1")])
def test_another_contract_explains_a_distance_in_16_bits_alone(dtype, named):
    element = Element((1, 5), "1", "0", "+99 ULP", {}, Truth("1", 0, -99, ()))
    case = Case("silu_and_mul", dtype, (4,), 64, "normal", 1, contract("silu_and_mul"))
    compared = Comparison(256, 1, 99, {"99": 1}, {}, element)
    assert named in headline(Result(case, "torch", "torch-rmsnorm", (), {"output": compared}, followed="S1"))


def test_a_candidate_that_is_far_from_the_truth_is_no_outlier_of_the_references():
    Off.steps = 20
    case = Case("silu_and_mul", "fp32", (4,), 64, "normal", 1, contract("silu_and_mul"))
    text = printed(check(case, Off(), [TorchPlain()])[0])
    assert "Worst case: silu_and_mul fp32" in text
    assert "outlier" not in text
    candidate, reference = distances(text)
    assert abs(reference) <= 4
    assert abs(candidate - reference) == 1 << 20


def test_the_row_around_the_worst_element_holds_both_sides_and_the_truth():
    Off.steps = 20
    element = found("silu_and_mul", reference=Off()).outputs["output"].worst
    assert element.index == (1, 5)
    (at,) = [each for each in element.truth.row if each.column == 5]
    assert [each.column for each in element.truth.row] == list(range(1, 10))
    assert (at.actual, at.expected, at.right) == (element.actual, element.expected, element.truth.right)
    assert all(each.actual == each.expected for each in element.truth.row if each.column != 5)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999_999, "999,999"), (1_000_000, "1M"), (950_123_456, "950M"), (4_290_000_000, "4.29G")]
)
def test_large_numbers_are_short(number, text):
    assert compact(number) == text


def test_a_sentence_is_broken_at_blanks_on_a_terminal_and_one_line_in_a_pipe():
    text = "  not covered: [rows] more than 257 rows, which --rows 65537 asks for"
    for terminals, lines in (
        (True, ["  not covered: [rows] more than 257", "  rows, which --rows 65537 asks for"]),
        (False, [text]),
    ):
        screen = Console(width=36, highlight=False, force_terminal=terminals, color_system=None)
        with screen.capture() as capture:
            terminal.say(screen, text.replace("[", "\\["))
        assert [line.rstrip() for line in capture.get().splitlines()] == lines

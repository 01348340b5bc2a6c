"""The same rows must give the same bits: in a second call, and, where it is promised or asked for, in a smaller batch."""

import re
import shlex
from xml.etree import ElementTree

import pytest
import torch
from click.testing import CliRunner

from difftest import cli
from difftest.cases import Case, Request, generate
from difftest.run.check import check
from difftest.run.stability import chosen, parts
from reference.contracts import contract
from reference.operators import OPERATORS
from reference.providers import Refused
from reference.providers.torch_plain import TorchPlain

ONE = ("--dtypes", "fp32", "--widths", 4096, "--rows", 4, "--regimes", "normal", "--cases", 0, "--strength", 0)
CASE = Case("rmsnorm", "fp32", (4,), 64, "normal", 1, contract("rmsnorm"))
DEFAULT = Request({op: contract(op) for op in OPERATORS}, ["fp16", "bf16", "fp32"], [1, 3, 111, 4096], extra=7)


class Changed(TorchPlain):
    """Plain arithmetic whose outputs go through `change(number of the call, inputs, output)`; `calls` keeps inputs and copies."""

    def __init__(self, change=lambda number, inputs, output: output):
        super().__init__()
        self.change, self.calls = change, []

    def function(self, op, contract=None):
        right = super().function(op, contract)

        def call(*inputs):
            self.calls.append([(each, each.clone()) for each in inputs if isinstance(each, torch.Tensor)])
            return self.change(len(self.calls), inputs, right(*inputs))

        return call


def asked(provider, case=CASE, **how):
    (result,) = check(case, provider, [TorchPlain()], again=True, **how)
    return result


def commands(run):
    """What runs the worst case again, and what runs its neighbours too."""
    return [
        shlex.split(line.partition(": ")[2])[2:]
        for line in run.out.splitlines()
        if ": python cli.py " in line and "identify" not in line
    ]


def status(words, tmp_path):
    return CliRunner().invoke(cli.main, [*words, "--failures", str(tmp_path / "again")]).exit_code


# --- from run to run ----------------------------------------------------------------------------------------------------


def test_a_sum_whose_order_changes_from_run_to_run_is_a_difference_though_both_orders_conform(difftest, broken, tmp_path):
    run = difftest("--candidate", broken("changes_from_run_to_run", "rmsnorm"), *ONE)
    assert run.status == 1
    (case,) = run.json["cases"]
    (reason,) = case["reasons"]
    said = re.fullmatch(r"changes from run to run: ([\d,]+) elements; output, row \d, column \d+ is (\S+), then (\S+)", reason)
    assert 0 < int(said[1].replace(",", "")) == case["stability"]["changing"] < 4 * 4096
    assert said[2] != said[3]
    assert reason in run.out
    assert "called again and in parts: 1 case, 1 change from run to run" in run.out
    assert run.json["stability"] == {"cases": 1, "changing": 1, "batch_dependent": 0}
    found = commands(run)
    assert [words[0] for words in found] == ["replay", "difftest"]
    assert [status(words, tmp_path) for words in found] == [1, 1]


@pytest.mark.parametrize("regime", ["zeros", "normal"])
def test_one_bit_of_one_element_is_a_change_and_so_is_the_sign_of_a_zero(regime):
    def change(number, inputs, output):
        if number == 2:
            output.view(torch.int32)[2, 5] ^= 1 if regime == "normal" else -(1 << 31)
        return output

    result = asked(Changed(change), Case("rmsnorm", "fp32", (4,), 64, regime, 1, contract("rmsnorm")))
    assert "changes from run to run: 1 element; output, row 2, column 5 is" in result.reasons[0]


def test_nan_equals_nan_whatever_its_bits():
    def change(number, inputs, output):
        output.view(torch.int32)[1, 2] = 0x7FC00000 + number
        return output

    assert asked(Changed(change)).stability.changing == 0


def test_a_residual_that_changes_is_named():
    def change(number, inputs, output):
        if number == 2:
            inputs[1][0, 0] += 1

    result = asked(Changed(change), Case("fused_add_rmsnorm", "bf16", (4,), 64, "normal", 1, contract("fused_add_rmsnorm")))
    assert "changes from run to run: 1 element; residual, row 0, column 0 is" in result.reasons[0]


def test_a_second_call_that_raises_is_a_difference():
    def change(number, inputs, output):
        return output if number == 1 else [][number]

    (reason,) = asked(Changed(change)).reasons
    assert re.fullmatch(r"in a second call: raised IndexError: list index out of range \(test_stability.py:\d+\)", reason)


def test_a_second_call_that_writes_out_of_its_rows_is_a_difference():
    def change(number, inputs, output):
        if number == 2:
            inputs[0].as_strided((1,), (1,), inputs[0].storage_offset() - 1).zero_()
        return output

    (reason,) = asked(Changed(change)).reasons
    assert reason == "in a second call: input: 1 element overwritten, the first 1 before its start"


def test_the_second_call_gets_the_same_values_in_the_same_layout_in_other_memory():
    provider = Changed()
    case = Case(
        "fused_add_rmsnorm",
        "bf16",
        (2, 3),
        64,
        "normal",
        1,
        contract("fused_add_rmsnorm"),
        padding=(("input", 3), ("residual", 3)),
        misaligned=("residual",),
    )
    assert asked(provider, case).reasons == ()
    first, second = provider.calls[:2]
    for (one, value), (other, again) in zip(first, second, strict=True):
        assert torch.equal(value, again)
        assert (one.shape, one.stride(), one.data_ptr() % 64) == (other.shape, other.stride(), other.data_ptr() % 64)
        assert one.data_ptr() != other.data_ptr()
    for call in provider.calls:
        assert [call[0][0].stride()[-2:], call[1][0].data_ptr() % 64] == [(67, 1), 2]


def test_an_output_that_is_handed_over_is_poisoned_for_every_call():
    seen = []

    class Out(TorchPlain):
        def function(self, op, contract=None):
            right = super().function(op, contract)

            def call(input, weight, eps, out):
                seen.append(bool(out.isnan().all()))
                return out.copy_(right(input, weight, eps))

            return call

    assert asked(Out(), Case("rmsnorm", "fp32", (4,), 64, "normal", 1, contract("rmsnorm"), out="given")).reasons == ()
    assert seen == [True] * 4


# --- the batch ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["rmsnorm", "fused_add_rmsnorm"])
def test_bits_that_depend_on_the_batch_are_a_remark(difftest, broken, function, tmp_path):
    run = difftest("--candidate", broken("order_by_the_batch", function), "--junit", tmp_path / "junit.xml", *ONE)
    assert run.status == 0
    (case,) = run.json["cases"]
    assert case["verdict"] == "conforms"
    (remark,) = case["remarks"]
    said = re.match(
        r"depends on the batch: ([\d,]+) elements of (\d) rows?; output, row \d, column \d+ is (\S+) among 4 rows, ", remark
    )
    elements = int(said[1].replace(",", ""))
    assert [elements, int(said[2])] == [case["stability"]["batch_elements"], case["stability"]["batch_rows"]]
    assert elements > 0
    assert "called again and in parts: 1 case, 1 depend on the batch" in run.out
    assert remark in run.out
    (output,) = ElementTree.parse(tmp_path / "junit.xml").getroot().findall(".//testcase/system-out")
    assert output.text == remark
    assert not ElementTree.parse(tmp_path / "junit.xml").getroot().findall(".//failure")
    strict = commands(run)[-1]
    assert strict[-1] == "--batch-invariant"
    assert status(strict, tmp_path) == 1


def test_bits_that_depend_on_the_batch_are_a_difference_when_asked_for(difftest, broken, tmp_path):
    run = difftest("--candidate", broken("order_by_the_batch", "rmsnorm"), "--batch-invariant", *ONE)
    assert run.status == 1
    (case,) = run.json["cases"]
    (reason,) = case["reasons"]
    assert reason.startswith("depends on the batch: ")
    assert case["remarks"] == []
    replay, narrowed = commands(run)
    assert [status(replay, tmp_path), status(narrowed, tmp_path)] == [1, 1]
    assert status([*replay, "--candidate", broken("order_by_the_batch", "rmsnorm")], tmp_path) == 0  # nothing asked of it
    assert status([*replay, "--candidate", broken("plain", "rmsnorm"), "--batch-invariant"], tmp_path) == 0


def test_a_remark_is_on_the_page(difftest, broken, tmp_path):
    pytest.importorskip("jinja2")
    difftest("--candidate", broken("order_by_the_batch", "rmsnorm"), "--html", tmp_path / "page.html", *ONE)
    page = (tmp_path / "page.html").read_text()
    assert ">Remarks</h2>" in page
    assert "depends on the batch" in page


def test_a_provider_that_promises_the_same_bits_is_held_to_it():
    def change(number, inputs, output):
        return output if len(output) == 4 else output * (1 + 2**-23)  # as by another rstd, within fp32 rounding

    assert asked(Changed(change)).reasons == ()
    assert "depends on the batch: 256 elements of 4 rows" in asked(Changed(change)).remarks[0]
    promising = Changed(change)
    promising.batch_invariant = True
    assert "depends on the batch: 256 elements of 4 rows" in asked(promising).reasons[0]
    assert "depends on the batch: 256 elements of 4 rows" in asked(Changed(change), batch_invariant=True).reasons[0]


@pytest.mark.parametrize("rows", [1, 3])
def test_a_wrong_part_is_a_difference_whatever_was_promised(rows):
    def change(number, inputs, output):
        return 1.5 * output if len(output) == rows else output

    reasons = asked(Changed(change)).reasons
    assert re.fullmatch(r"rows? \d( to \d)? alone: \d of \d rows: rstd is off; .*", reasons[0])


def test_a_part_with_the_bits_of_the_whole_is_not_judged_again(monkeypatch):
    judged = []
    monkeypatch.setattr("difftest.run.stability.judge", lambda *words: judged.append(words))
    asked(Changed(lambda number, inputs, output: output))
    assert judged == []


def test_every_call_is_counted():
    assert asked(Changed()).calls == 4
    (result,) = check(CASE, Changed(), [TorchPlain()])
    assert result.calls == 1


def test_a_part_that_raises_is_a_difference_and_one_that_is_refused_a_remark():
    def change(error):
        def raised(number, inputs, output):
            if len(output) == 1:
                raise error("one row")
            return output

        return raised

    (reason, *_) = asked(Changed(change(ValueError))).reasons
    assert re.fullmatch(r"row \d alone: raised ValueError: one row \(test_stability.py:\d+\)", reason)
    refused = asked(Changed(change(Refused)))
    assert refused.reasons == ()
    assert re.fullmatch(r"row \d alone: raised Refused: one row \(test_stability.py:\d+\)", refused.remarks[0])


def test_the_parts_are_the_first_or_the_last_row_and_all_others():
    def over_seeds(rows):
        return {parts(Case("rmsnorm", "fp32", (rows,), 8, "normal", seed, contract("rmsnorm"))) for seed in range(40)}

    assert over_seeds(0) == over_seeds(1) == {()}
    for rows in (2, 3, 256):
        assert over_seeds(rows) == {(range(1), range(1, rows)), (range(rows - 1, rows), range(rows - 1))}


# --- what is right ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function", ["silu_and_mul", *(pytest.param(name, marks=pytest.mark.slow) for name in ("fused_add_rmsnorm", "rmsnorm"))]
)
def test_what_is_right_has_the_same_bits_every_time(difftest, broken, function):
    run = difftest("--candidate", broken("plain", function), "--widths", "3,64,111", "--cases", 4, "--batch-invariant")
    assert run.status == 0, run.out
    assert run.json["stability"]["cases"] == len(run.json["cases"]) - 3  # the cases of no rows, one a dtype
    assert "cases, no bit changed" in run.out


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "silu_and_mul"])
def test_the_kernels_of_this_project_promise_the_same_bits_and_keep_it(difftest, op):
    run = difftest("--ops", op, *ONE, "--workers", 0)
    assert run.status == 0, run.out
    (case,) = run.json["cases"]
    assert case["stability"]["batch_invariant"] is True
    assert [rows for _, rows in case["stability"]["parts"]] == [1, 3]


# --- which cases --------------------------------------------------------------------------------------------------------


def test_about_one_case_in_sixteen_is_called_again_and_a_wide_one_of_several_rows_in_each_group():
    cases = list(generate(DEFAULT))
    found = chosen(cases)
    assert found == chosen(cases)
    assert len(cases) / 18 < len(found) < len(cases) / 11
    for op in OPERATORS:
        for dtype in DEFAULT.dtypes:
            mine = [cases[i] for i in found if (cases[i].op, cases[i].dtype) == (op, dtype)]
            assert any(case.rows > 1 and case.width >= 4096 for case in mine)


def test_the_widest_there_is_stands_for_a_wide_one():
    cases = [Case("rmsnorm", "fp32", (rows,), width, "normal", 1, contract("rmsnorm")) for width in (3, 64) for rows in (1, 4)]
    assert chosen(cases) == {3}
    assert chosen(cases[:1]) == frozenset()


@pytest.mark.parametrize("seed", range(3))
def test_the_command_that_runs_a_chosen_case_again_chooses_it_too(seed):
    cases = list(generate(Request(DEFAULT.contracts, DEFAULT.dtypes, [64, 300], extra=200, seed=seed)))
    for case in (cases[i] for i in chosen(cases)):
        _, _, number = case.origin.partition(":")
        random = bool(number)
        narrowed = Request(
            {case.op: DEFAULT.contracts[case.op]},
            [case.dtype],
            [64, 300] if random else [case.width],
            rows=None if random else [case.rows],
            regimes=None if random else [case.regime],
            extra=int(number) + 1 if random else 0,
            seed=seed,
        )
        again = list(generate(narrowed))
        assert case in [again[i] for i in chosen(again)]

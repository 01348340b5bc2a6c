"""A run keeps what it found, whatever stops it; worker processes give the same results in the same order."""

import pytest
import torch

from difftest.cases import Request, generate
from difftest.report import summary
from difftest.run import isolation, session
from difftest.run.check import check
from difftest.run.session import Session, default_workers, run
from reference.contracts import contract
from reference.providers.torch_plain import TorchPlain

CASES = list(
    generate(
        Request(
            {"rmsnorm": contract("rmsnorm"), "silu_and_mul": contract("silu_and_mul")},
            ["bf16", "fp32"],
            [3, 64],
            rows=[4],
        )
    )
)
EVERY = frozenset(range(len(CASES)))
INTERRUPTED = ("--in-process", "--ops", "rmsnorm", "--widths", 64, "--cases", 0)  # where a candidate can stand for Ctrl-C


@pytest.fixture(scope="module")
def here():
    return run(Session(CASES, "torch", ["torch"], again=EVERY))


def test_an_interrupted_run_keeps_and_saves_the_differences_it_found(difftest, broken):
    run = difftest("--candidate", broken("interrupts", "wrong_rmsnorm"), *INTERRUPTED)
    assert run.status == 1
    assert run.json["interrupted"] is True
    assert len(run.json["cases"]) == 5
    assert run.json["not_run"] > 0
    assert "interrupted" in run.out


@pytest.mark.parametrize("function", ["right_rmsnorm", "terminated_rmsnorm"])
def test_an_interrupted_run_without_a_difference_is_no_pass(difftest, broken, function):
    run = difftest("--candidate", broken("interrupts", function), *INTERRUPTED)
    assert run.status == 130
    assert run.json["interrupted"] is True
    assert len(run.json["cases"]) == 5


def test_on_case_is_called_once_for_each_case_in_order():
    seen = []
    run(Session(CASES[:4], "torch", ["torch"]), seen.append)
    assert seen == CASES[:4]


def test_two_references_give_two_results_a_case():
    outcome = run(Session(CASES[:2], "torch", ["torch", "torch:W1"]))
    assert [(r.case, r.against) for r in outcome.results] == [(c, a) for c in CASES[:2] for a in ("torch", "torch:W1")]


class Recording(TorchPlain):
    """Plain arithmetic under a name of its own; `seen` gets that name, the inputs, and the memory that torch hands out."""

    def __init__(self, name, seen):
        super().__init__()
        self.name, self.seen = name, seen

    def function(self, op, contract=None):
        right = super().function(op, contract)

        def call(input, residual, weight, eps):
            self.seen.append((self.name, input.clone(), residual.clone(), torch.empty(64)))
            right(input, residual, weight, eps)

        return call


def test_the_candidate_runs_first_and_every_reference_gets_what_it_was_given():
    """A reference that ran on the buffers of an operator that works in place would get sums in place of inputs."""
    seen = []
    (case,) = generate(
        Request({"fused_add_rmsnorm": contract("fused_add_rmsnorm")}, ["bf16"], [64], rows=[4], regimes=["normal"])
    )
    check(case, Recording("candidate", seen), [Recording("one", seen), Recording("other", seen)])
    assert [name for name, *_ in seen] == ["candidate", "one", "other"]
    for _, input, residual, _ in seen[1:]:
        assert torch.equal(input, seen[0][1])
        assert torch.equal(residual, seen[0][2])


def test_memory_that_a_candidate_allocates_holds_nan_and_no_earlier_answer():
    seen = []
    (case,) = generate(
        Request({"fused_add_rmsnorm": contract("fused_add_rmsnorm")}, ["bf16"], [64], rows=[4], regimes=["normal"])
    )
    check(case, Recording("candidate", seen), [])
    assert bool(seen[0][3].isnan().all())


def test_workers_find_the_same_in_the_same_order(here):
    outcome = run(Session(CASES, "torch", ["torch"], workers=2, again=EVERY))
    assert [r.to_json() for r in outcome.results] == [r.to_json() for r in here.results]
    assert outcome.not_run == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_a_candidate_that_takes_its_process_down_is_a_difference_and_another_process_goes_on(broken, workers):
    wide = [case for case in CASES if case.op == "rmsnorm"]
    outcome = run(Session(wide, broken("dies", "dies_at_width_3"), ["torch"], workers=workers))
    died = [result.case for result in outcome.results if result.reasons == ("was ended by SIGKILL",)]
    assert died == [case for case in wide if case.width == 3 and case.regime == "zeros"]
    assert len(died) == 2
    assert not [result for result in outcome.results if result.differs and result.case not in died]
    assert outcome.not_run == 0


def test_a_worker_that_a_candidate_without_a_process_of_its_own_takes_down_is_followed_by_another(broken):
    outcome = run(Session(CASES[:3], broken("dies", "rmsnorm"), ["torch"], workers=1, isolated=False))
    assert [result.case for result in outcome.results] == CASES[:3]
    assert {result.reasons for result in outcome.results} == {("the process died in the middle of the call (exit code -9)",)}
    assert outcome.not_run == 0


def test_what_is_left_after_too_many_crashes_is_given_up(broken, monkeypatch):
    monkeypatch.setattr(session, "MOST_CRASHES", 2)
    outcome = run(Session(CASES[:4], broken("dies", "rmsnorm"), ["torch"], workers=1, isolated=False))
    assert len(outcome.results) == 2
    assert outcome.not_run == 2


def test_what_is_left_after_too_many_lost_processes_is_not_run_and_said(broken, monkeypatch):
    monkeypatch.setattr(isolation, "MOST_LOST", 2)
    outcome = run(Session(CASES[:4], broken("dies", "rmsnorm"), ["torch"]))
    assert len(outcome.results) == 2
    assert outcome.not_run == 2
    assert "2 processes were lost" in summary.early(outcome)


def test_workers_see_the_environment_of_their_run_and_not_of_an_earlier_one(tmp_path, monkeypatch):
    file = tmp_path / "asks.py"
    file.write_text("import os\n\ndef rmsnorm(*_, **__):\n    raise RuntimeError('it is ' + os.environ['DAY'])\n")
    for day in ("monday", "tuesday"):
        monkeypatch.setenv("DAY", day)
        (result,) = run(Session(CASES[:1], f"{file}:rmsnorm", ["torch"], workers=1)).results
        assert f"it is {day}" in result.reasons[0]


def test_only_kernels_that_compile_on_the_cpu_get_workers():
    assert default_workers("torch", "cpu") == 0
    assert default_workers("FILE.py:rmsnorm", "cpu") == 0
    assert default_workers("numba", "cuda:0") == 0

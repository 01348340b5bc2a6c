"""A candidate's process: whatever one call does to it is that call's result, and the other cases' results are what they are."""

import dataclasses
import gc
import os
import subprocess
import sys
import time

import pytest
import torch

from difftest.cases import Request, generate
from difftest.report import summary
from difftest.run import isolation, memory
from difftest.run.session import Session, run
from reference.contracts import contract
from tests.difftest.broken import hostile

KINDS = list(hostile.KINDS)
LONG = {"ignores SIGTERM", "prints", "100 GB", "memory in pieces"}  # seconds each
CASES = list(
    generate(
        Request(
            {"rmsnorm": contract("rmsnorm")}, ["bf16"], range(hostile.FIRST, hostile.FIRST + 100), rows=[4], regimes=["normal"]
        )
    )
)[:100]


@pytest.fixture
def hostile_run(broken, tmp_path, monkeypatch):
    """Runs cases, each of which is asked for by its width, and holds each result to what its kind must lead to."""
    monkeypatch.chdir(tmp_path)

    def held(cases):
        outcome = run(Session(cases, broken("hostile", "rmsnorm"), ["torch"], call_seconds=2))
        assert outcome.fault is None
        assert [result.case for result in outcome.results] == cases
        wrong = []
        for result in outcome.results:
            number = result.case.width - hostile.FIRST
            kind = KINDS[number] if number < len(KINDS) else "right"
            _, reason, remark = hostile.KINDS.get(kind, (None, "", ""))
            told = (reason, result.reasons), (remark, result.remarks)
            if any(bool(said) != bool(words) or (said and not any(said in each for each in words)) for said, words in told):
                wrong.append((kind, result.reasons, result.remarks))
        assert not wrong
        assert summary.exit_status(outcome) == 1

    return held


@pytest.mark.slow
def test_every_kind_is_reported_as_what_it_is_in_one_run_of_100_cases_whose_others_are_right(hostile_run, tmp_path):
    assert len(KINDS) < 60
    hostile_run(CASES)
    (kept,) = (tmp_path / isolation.PRINTED).iterdir()
    assert kept.stat().st_size == isolation.MOST_PRINTED


def test_nearly_every_kind_is_reported_as_what_it_is_in_one_run(hostile_run):
    hostile_run([case for case, kind in zip(CASES, [*KINDS, *["right"] * 10], strict=False) if kind not in LONG])


def test_a_candidate_that_ends_every_process_is_a_difference_and_no_pass(difftest, broken, monkeypatch):
    monkeypatch.setattr(isolation, "MOST_LOST", 3)
    run = difftest("--candidate", broken("exits", "rmsnorm"), "--dtypes", "bf16", "--widths", 64, "--cases", 0)
    assert run.status == 1
    assert [case["reasons"] for case in run.json["cases"]] == [["ended its process (exit code 0)"]] * 3
    assert run.json["not_run"] > 0
    assert "3 processes were lost" in run.out


def test_flush_to_zero_at_a_candidates_import_flushes_its_values_and_not_the_testers(difftest, broken):
    words = ("--dtypes", "fp32", "--widths", 64, "--cases", 0, "--rows", 4, "--regimes", "subnormal,normal")
    run = difftest("--candidate", broken("flushes_to_zero", "fused_add_rmsnorm"), *words)
    subnormal, normal = sorted(run.json["cases"], key=lambda case: case["regime"] == "normal")
    assert normal["verdict"] == "conforms"
    assert any("residual: " in reason and "are not the rounded sum" in reason for reason in subnormal["reasons"])
    assert normal["remarks"] == ["its import changed flush-to-zero"]
    assert float.fromhex("0x1p-1073") * 0.5 > 0
    assert bool(torch.tensor(1e-40) * 0.5 > 0)


def test_a_file_that_ends_its_process_when_it_is_imported_is_bad_usage(difftest, tmp_path):
    file = tmp_path / "leaves.py"
    file.write_text("import ctypes\nctypes.CDLL(None)._exit(0)\n")
    run = difftest("--candidate", f"{file}:rmsnorm", "--ops", "rmsnorm")
    assert run.status == 2
    assert "leaves.py:rmsnorm does not import: it ended its process (exit code 0)" in run.err


def test_the_same_bits_come_back_from_a_process_of_its_own(broken):
    function = broken("order_by_the_batch", "rmsnorm")
    every = frozenset(range(10))
    here, there = (run(Session(CASES[:10], function, ["torch"], again=every, isolated=isolated)) for isolated in (False, True))
    assert [result.to_json() for result in here.results] == [result.to_json() for result in there.results]


@pytest.mark.slow
def test_nothing_of_a_candidate_outlives_a_tester_that_is_killed(tmp_path):
    file = tmp_path / "sleeps.py"
    says = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    file.write_text(f"import os, time\n\ndef rmsnorm(*_):\n    {says}\n    time.sleep(999)\n")
    command = [sys.executable, "-m", "difftest.cli", "difftest", "--candidate", f"{file}:rmsnorm", "--device", "cpu"]
    tester = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    tester.kill()
    tester.wait()
    pid = int((tmp_path / "pid").read_text())
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("it is still there")


def test_a_candidate_in_the_testers_process_does_not_move_it(tmp_path, monkeypatch, difftest):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "moves.py"
    file.write_text("import os\n\ndef rmsnorm(*_):\n    os.chdir('/')\n    raise ValueError\n")
    words = ("--candidate", "moves.py:rmsnorm", "--in-process", "--dtypes", "bf16", "--widths", 3, "--cases", 0)
    assert difftest(*words, "--junit", "found.xml").status == 1
    assert (tmp_path / "found.xml").exists()


@pytest.mark.gpu
def test_on_a_gpu_the_same_bits_come_back_from_a_process_of_its_own(broken):
    cases = [dataclasses.replace(case, device="cuda:0") for case in CASES[:10]]
    every = frozenset(range(10))
    function = broken("order_by_the_batch", "rmsnorm")
    sessions = [Session(cases, function, ["torch"], again=every, isolated=isolated) for isolated in (False, True)]
    here, there = (run(session) for session in sessions)
    assert there.fault is None
    assert isinstance(sessions[1].opened().provider, isolation.Isolated)
    assert [result.to_json() for result in here.results] == [result.to_json() for result in there.results]


@pytest.mark.gpu
def test_a_call_in_another_process_waits_for_its_inputs(broken, monkeypatch):
    """On a GPU that other processes use, too, they are written late."""
    real = isolation.Isolated.memory

    def later(provider, *cases):
        torch.cuda._sleep(400_000_000)  # cycles, a fifth of a second: what is written comes behind it
        return real(provider, *cases)

    monkeypatch.setattr(isolation.Isolated, "memory", later)
    cases = [dataclasses.replace(case, device="cuda:0") for case in CASES[:3]]
    session = Session(cases, broken("plain", "rmsnorm"), ["torch"], call_seconds=60).opened()
    assert isinstance(session.provider, isolation.Isolated)
    outcome = run(session)
    session.close()
    assert [result.verdict for result in outcome.results if result.differs] == []
    assert len(outcome.results) == 3


@pytest.mark.parametrize(("device", "waits"), [("cpu", []), ("cuda", [torch.device("cuda")])])
def test_on_a_gpu_what_another_process_is_to_read_is_waited_for(monkeypatch, device, waits):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    memory.Shared(torch.device(device)).settle()
    assert waited == waits


@pytest.mark.gpu
def test_a_fault_on_the_gpu_spoils_one_case_and_not_the_testers_context(tmp_path):
    file = tmp_path / "faults.py"
    file.write_text(
        "import torch\nfrom difftest.mutants.plain import rmsnorm as right\n\n"
        "def rmsnorm(input, weight, eps):\n"
        "    if input.shape[-1] == 25:\n"
        "        input.view(-1)[torch.full((1,), 10**9, device=input.device)].sum().item()\n"
        "    return right(input, weight, eps)\n"
    )
    cases = [dataclasses.replace(case, device="cuda:0") for case in CASES[:10]]
    session = Session(cases, f"{file}:rmsnorm", ["torch"], call_seconds=60)
    assert isinstance(session.opened().provider, isolation.Isolated), "or this test spoils the context of all others"
    outcome = run(session)
    assert outcome.fault is None
    assert [result.case.width for result in outcome.results if result.differs] == [25]


@pytest.mark.gpu
def test_our_kernels_have_a_process_of_their_own_on_a_gpu():
    cases = [dataclasses.replace(case, device="cuda:0") for case in CASES[:10]]
    session = Session(cases, "numba", ["torch"], again=frozenset(range(10))).opened()
    assert isinstance(session.provider, isolation.Isolated)
    outcome = run(session)
    session.close()
    assert outcome.fault is None
    assert not [result for result in outcome.results if result.differs]


@pytest.mark.gpu
def test_a_crash_an_illegal_access_and_a_hang_on_a_gpu_are_those_cases_results_and_the_run_goes_on(tmp_path):
    file = tmp_path / "fails.py"
    file.write_text(
        "import os, signal, torch\nfrom difftest.mutants.plain import rmsnorm as right\n\n"
        "def rmsnorm(input, weight, eps):\n"
        f"    kind = input.shape[-1] - {hostile.FIRST}\n"
        "    if kind == 1:\n        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    if kind == 2:\n"
        "        input.view(-1)[torch.full((1,), 10**9, device=input.device)].sum().item()\n"
        "    if kind == 3:\n        torch.cuda._sleep(1 << 46)  # hours\n"
        "    return right(input, weight, eps)\n"
    )
    cases = [dataclasses.replace(case, device="cuda:0") for case in CASES[:6]]
    session = Session(cases, f"{file}:rmsnorm", ["torch"], call_seconds=20)
    assert isinstance(session.opened().provider, isolation.Isolated), "or this test ends the tester's process"
    outcome = run(session)
    assert outcome.fault is None
    assert [bool(result.differs) for result in outcome.results] == [False, True, True, True, False, False]
    crash, illegal, hang = (" ".join(outcome.results[number].reasons) for number in (1, 2, 3))
    assert "was ended by SIGSEGV" in crash
    assert "device-side assert" in illegal or "illegal" in illegal
    assert "gave no answer in 20 s" in hang


@pytest.mark.gpu
def test_memory_of_a_gpu_that_another_process_had_open_is_free_once_the_process_is_gone():
    torch.ones(1, device="cuda")
    gc.collect()
    torch.cuda.ipc_collect()
    before = torch.cuda.memory_allocated()
    provider = isolation.provider("numba", device="cuda:0")
    assert isinstance(provider, isolation.Isolated)
    assert torch.cuda.memory_allocated() > before
    provider.close()
    del provider
    gc.collect()
    torch.cuda.ipc_collect()
    assert torch.cuda.memory_allocated() <= before

"""What seldom happens to a run: a system without fork, messages that are none, a provider's odd answers, a disk that is full."""

import errno
import multiprocessing
import os
import signal
from dataclasses import replace

import pytest
import torch

from difftest.cases import Case
from difftest.errors import LackingError, UsageError
from difftest.mutants import plain
from difftest.run import buffers, call, cost, environment, isolation, lines, memory, nursery, perform, pool, session
from difftest.run import check as checks
from difftest.run.isolation import Isolated
from difftest.run.journal import Journal, saved_in
from difftest.run.session import Session
from reference import providers
from reference.contracts import contract
from reference.formats import FORMATS

from .test_pool import Squares

CASE = Case("rmsnorm", "bf16", (2,), 3, "normal", 1, contract("rmsnorm"))
TORCH = providers.get("torch")


class Odd:
    """A provider in this process, with one thing about it that is asked for."""

    name, in_place, batch_invariant = "odd", False, False

    def __init__(self, check=None, function=None):
        self._check, self._function = check, function

    def check(self, case):
        return self._check

    def function(self, op, held_to=None):
        return self._function()


def raising(error):
    def function():
        raise error

    return function


# --- the pool -------------------------------------------------------------------------------------------------------------


def test_where_the_system_has_no_fork_workers_start_anew(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert pool.context().get_start_method() == "spawn"
    pool.prepare()  # there is no server to start


class Pipe:
    """A worker's end: gives what is there to be done, then ends; keeps what is said."""

    def __init__(self, *groups):
        self.groups, self.told = list(groups), []

    def recv(self):
        if not self.groups:
            raise EOFError
        return self.groups.pop(0)

    def send(self, message):
        self.told.append(message)


def test_a_worker_says_when_a_task_starts_what_it_gave_and_when_a_group_ends(monkeypatch):
    monkeypatch.setattr(pool.interrupts, "left_to_the_parent", lambda: None)
    pipe = Pipe((0, [2, -2, 3]))
    pool._work(Squares(), float("inf"), pipe, {})
    kinds = [kind for kind, _ in pipe.told]
    assert kinds == ["starts", "answers", "starts", "fails", "starts", "answers", "ends"]
    assert [said for kind, said in pipe.told if kind == "answers"] == [4, 9]
    assert "ZeroDivisionError" in pipe.told[3][1]
    late = Pipe((0, [2]))
    pool._work(Squares(), 0.0, late, {})
    assert late.told == [("ends", None)]


# --- a session, a check, an estimate --------------------------------------------------------------------------------------


def test_a_fault_of_the_testers_own_keeps_what_was_found_before_it(monkeypatch):
    cases = [replace(CASE, seed=seed) for seed in (1, 2)]
    found = session.check

    def once(case, *given, **options):
        if case.seed == 2:
            raise ZeroDivisionError("the tester's")
        return found(case, *given, **options)

    monkeypatch.setattr(session, "check", once)
    outcome = session.run(Session(cases, "torch", ["torch"], isolated=False))
    assert ([result.case for result in outcome.results], type(outcome.fault)) == ([cases[0]], ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        session.run(Session(cases[1:], "torch", ["torch"], isolated=False))


def test_workers_are_for_our_kernels_on_a_cpu_and_one_core_has_none(monkeypatch):
    monkeypatch.setattr(pool, "cores", lambda: 8)
    assert [session.default_workers(*who) for who in (("numba", "cpu"), ("torch", "cpu"), ("numba", "cuda"))] == [4, 0, 0]
    monkeypatch.setattr(pool, "cores", lambda: 1)
    assert session.default_workers("numba", "cpu") == 0


def test_a_case_is_named_by_itself_where_the_tester_fails_in_it():
    assert session.Checks(Session([CASE], "torch", ["torch"])).name(0) == str(CASE)


def test_what_a_provider_has_no_function_for_is_said_with_its_name():
    for error, said in (
        (ValueError("odd has no such thing"), "odd has no such thing"),
        (providers.Unavailable("gone"), "odd: gone"),
        (SystemExit(3), "odd: raised SystemExit: 3"),
    ):
        assert checks.function_of(CASE, Odd(function=raising(error))) == said
    assert checks.function_of(CASE, Odd(check="no such width")) == "odd: no such width"


def test_one_reason_for_all_cases_is_why_nothing_runs():
    assert checks.nothing_runs(Odd(check="no GPU"), [CASE]) == "no GPU"
    assert checks.nothing_runs(Odd(), [CASE]) is None
    assert checks.nothing_runs(Odd(check="no GPU"), []) is None


def test_a_reference_that_raises_is_left_out_and_ctrl_c_in_it_is_not():
    assert checks.check(CASE, TORCH, [Odd(function=raising(OSError("gone")))])[0].reason == "raised OSError: gone"
    with pytest.raises(KeyboardInterrupt):
        checks.check(CASE, TORCH, [Odd(function=raising(KeyboardInterrupt()))])


def test_a_gpus_cases_cost_what_python_does():
    here, there = (cost.seconds(Session([replace(CASE, device=device)] * 100, "x.py:f", ["torch"])) for device in ("cpu", "cuda"))
    assert 0 < there < here


def test_a_package_that_is_not_there_has_no_version():
    assert environment.version_of("no-such-package") is None


# --- a call ---------------------------------------------------------------------------------------------------------------


def test_several_calls_of_a_function_here_are_one_after_the_other():
    inputs = CASE.inputs()
    found = call.call_all([CASE, CASE], TORCH.function(CASE.op, CASE.contract), [inputs, inputs])
    assert torch.equal(found[0].outputs["output"], found[1].outputs["output"])


def test_a_function_whose_parameters_nobody_can_tell_takes_no_out():
    assert not perform.takes_out(type)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda x: x.float(), "output has dtype torch.float32, not torch.bfloat16"),
        (lambda x: x.to("meta"), "output is on meta, not cpu"),
        (lambda x: x.to_sparse(), "output has layout torch.sparse_coo, not torch.strided"),
        (lambda x: x[:1], "output has shape (1, 3), not (2, 3)"),
    ],
)
def test_what_is_no_output_of_the_call_is_said_in_this_process_too(returned, said):
    found = call.call(CASE, lambda input, weight, eps: returned(input), CASE.inputs())
    assert found.failure == said


def test_an_error_that_no_file_of_the_candidates_raised_has_no_place():
    try:
        perform._kind()
    except TypeError as error:
        assert perform._where(error) == f" (test_rare_branches.py:{error.__traceback__.tb_lineno})"  # noqa: PT017
        assert perform._where(error.with_traceback(None)) == ""  # noqa: PT017


def test_a_stray_write_is_told_from_the_row_that_it_is_past():
    buffer = buffers.allocate("x", (2,), 3, FORMATS["bf16"], torch.device("cpu"))
    buffer.storage[buffer.base + 6 + 9] = 1.0
    assert buffer.stray_writes(writable=True) == "x: 1 element overwritten, the first 10 past the end of row 1"


# --- shared memory, and a file without a name -----------------------------------------------------------------------------


def test_more_memory_than_was_asked_for_is_refused_and_an_empty_tensor_is_none():
    shared = memory.Shared(torch.device("cpu"))
    shared.begin(memory.ALIGNMENT)
    assert shared.take(0, torch.uint8).numel() == 0
    with pytest.raises(RuntimeError, match="more than was asked for"):
        shared.take(memory.LEAST * 100, torch.uint8)
    shared.close()


def test_a_file_without_a_name_that_can_not_be_made_larger_is_closed(monkeypatch):
    closed = []
    close = os.close
    monkeypatch.setattr(memory.os, "truncate", lambda file, size: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    monkeypatch.setattr(memory.os, "close", lambda file: closed.append(file) or close(file))
    with pytest.raises(OSError, match="full"):
        memory._nameless(4096)
    assert len(closed) == 1


# --- a journal's file -----------------------------------------------------------------------------------------------------


def test_a_journal_that_can_not_be_opened_or_read_is_said_in_a_line(tmp_path, monkeypatch):
    with pytest.raises(LackingError, match="could not be written: Is a directory"):
        Journal(tmp_path, {})
    for read in (lambda path: Journal(path, {}, resume=True), saved_in):
        with pytest.raises(UsageError, match=r"--resume: .*: No such file"):
            read(tmp_path / "none.jsonl")
    monkeypatch.chdir(tmp_path)
    lines.FOLDER.parent.mkdir()
    lines.FOLDER.write_text("a file in the folder's place")
    assert Journal.unnamed({}) is None


def test_a_first_line_that_is_cut_off_tells_of_no_saved_cases_and_a_wrong_one_is_refused(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"saved": [')
    assert saved_in(path) == []
    path.write_text('{"saved": [{"op": 3}]}\n')
    with pytest.raises(UsageError, match="line 1 is no line of a journal"):
        saved_in(path)


def test_a_line_that_the_system_takes_in_two_parts_is_whole(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(
        lines.os, "write", lambda file, data: write(file, data[:20]) if data.startswith(b"{") else write(file, data)
    )
    journal = Journal(tmp_path / "x.jsonl", {"a": "0123456789"})
    journal.close()
    assert Journal(tmp_path / "x.jsonl", {"a": "0123456789"}, resume=True).done == {}


# --- a candidate's process ------------------------------------------------------------------------------------------------


@pytest.fixture
def isolated():
    """A right candidate in a process of its own."""
    found = Isolated(f"{plain.__file__}:rmsnorm", "--candidate", torch.device("cpu"), None)
    yield found
    found.close()


def test_a_process_of_its_own_tells_its_version_and_is_not_timed(isolated):
    assert isolated.version()
    with pytest.raises(ValueError, match="it has no form for timing"):
        isolated.native("rmsnorm")
    with pytest.raises(TypeError, match=r"is called by difftest\.run\.call alone"):
        isolated.function("rmsnorm", CASE.contract)(1)


def test_a_nursery_that_is_gone_is_followed_by_another(isolated):
    os.kill(nursery.get().pid, signal.SIGKILL)
    found = call.call(CASE, isolated.function("rmsnorm", CASE.contract), CASE.inputs())
    assert set(found.outputs) == {"output"} or found.failure
    isolated._retire()
    assert isolated.check(CASE) is None
    assert set(call.call(CASE, isolated.function("rmsnorm", CASE.contract), CASE.inputs()).outputs) == {"output"}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"{", "said something that is no answer"),
        (b"3", "said something that is no answer"),
        (b"{}", "said something that is no answer"),
        (b"[" * 100_000, "said something that is no answer"),
        (b'{"error": "Unavailable", "text": "not today"}', "not today"),
    ],
)
def test_an_answer_that_is_none_ends_the_process_and_is_the_calls_result(isolated, monkeypatch, message, said):
    function = isolated.function("rmsnorm", CASE.contract)
    assert set(call.call(CASE, function, CASE.inputs()).outputs) == {"output"}
    channel = isolated._process.channel
    monkeypatch.setattr(isolated._process, "channel", Answering(channel, message))
    found = call.call(CASE, function, CASE.inputs())
    assert found.failure == said
    assert set(call.call(CASE, function, CASE.inputs()).outputs) == {"output"}  # another process, or the same, is as good


class Answering:
    """A channel through which that message comes once in place of the answer."""

    def __init__(self, channel, message):
        self._channel, self._message = channel, message

    def __getattr__(self, name):
        return getattr(self._channel, name)

    def recv(self, size):
        answer, message = self._channel.recv(size), self._message
        self._message = b""
        return message or answer


def test_a_system_that_gives_no_more_is_the_testers_own_lack(isolated, monkeypatch):
    isolated.function("rmsnorm", CASE.contract)
    monkeypatch.setattr(isolation.socket, "send_fds", lambda *given: (_ for _ in ()).throw(OSError(errno.EMFILE, "too many")))
    with pytest.raises(OSError, match="too many"):
        call.call(CASE, isolated.function("rmsnorm", CASE.contract), CASE.inputs())

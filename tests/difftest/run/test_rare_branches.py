"""What seldom happens to a run: a system without fork, messages that are none, a provider's odd answers, a disk that is full."""

import errno
import json
import math
import multiprocessing
import os
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch

from difftest.cases import Case
from difftest.errors import LackingError, UsageError
from difftest.mutants import plain
from difftest.run import buffers, call, conditions, cost, environment, isolation, lines, memory, nursery, perform, pool, session
from difftest.run import check as checks
from difftest.run.isolation import Isolated
from difftest.run.journal import Journal, from_plain, saved_in
from difftest.run.session import Session
from reference import providers
from reference.contracts import contract
from reference.formats import FORMATS
from reference.operators import OPERATORS

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


def lone_pool(message=None, left=()):
    """A pool with one worker, whose pipe says that; which groups have ended, and what was reported."""
    told, ended = [], []
    made = pool._Pool(
        Squares(), [[1]], lambda *given: told.append(given), False, pool.Limits(), lambda *given: ended.append(given)
    )
    pipe = SimpleNamespace(recv=lambda: message, close=lambda: None)
    process = SimpleNamespace(join=lambda seconds: None, exitcode=0)
    worker = pool._Worker(process, Hashed(pipe), 0, list(left))
    made.busy[worker.pipe] = worker
    return made, worker, told, ended


class Hashed:
    def __init__(self, pipe):
        self.recv, self.close = pipe.recv, pipe.close


def test_a_group_that_the_deadline_cut_short_has_not_ended():
    for left, count in (((), 1), ((3,), 0)):
        made, worker, told, ended = lone_pool(("ends", None), left)
        made._hear(worker)
        assert (len(ended), told, made.busy) == (count, [], {})


def test_a_worker_that_dies_when_all_is_done_costs_nothing():
    made, worker, told, _ = lone_pool()
    made._lose(worker, silent=False)
    assert (told, made.busy, made.crashes) == ([], {}, {})


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


def test_what_a_result_file_says_of_a_gpu_is_what_torch_and_nvidia_smi_say(monkeypatch):
    card = SimpleNamespace(name="X", major=9, minor=0, multi_processor_count=132, total_memory=1, L2_cache_size=2, uuid="u")
    monkeypatch.setattr(conditions.torch.cuda, "get_device_properties", lambda device: card)
    asked = []

    def smi(command, **options):
        asked.append(command[-1])
        if command[-1] == "GPU-u":
            raise OSError("no such GPU")
        return SimpleNamespace(stdout="580, 1980 , 2619\n" if "," in command[1] else "")

    monkeypatch.setattr(conditions.subprocess, "run", smi)
    found = conditions.head("s/1", "c", torch.device("cpu"), [TORCH])
    assert found["card"]["compute_capability"] == "9.0"
    assert list(found["clocks"].values()) == ["580", "1980", "2619"]
    assert asked[-2:] == ["GPU-u", "0"]
    assert "provider torch" in found["environment"]
    assert found["date"].endswith("+00:00")
    monkeypatch.setattr(conditions.subprocess, "run", lambda *given, **options: SimpleNamespace(stdout="\n"))
    assert conditions.clocks(torch.device("cpu")) == {}


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


def test_an_error_that_torch_raised_has_the_place_that_called_torch():
    try:
        torch.nn.functional.interpolate(torch.ones(1, 1, 2), mode="x", size=3)
    except NotImplementedError as error:
        assert perform._where(error).startswith(" (test_rare_branches.py:")  # noqa: PT017


def test_outputs_are_what_was_returned_or_the_tensors_that_were_written():
    fused, tensors = OPERATORS["fused_add_rmsnorm"], {"input": 1, "residual": 2, "weight": 3}
    assert call.collect(OPERATORS["rmsnorm"], {}, 7) == {"output": 7}
    assert call.collect(fused, tensors, None) == {"output": 1, "residual": 2}
    assert call.collect(fused, tensors, (4, 5)) == {"output": 4, "residual": 5}


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


def test_memory_that_another_process_opens_is_the_same_memory():
    shared = memory.Shared(torch.device("cpu"))
    shared.begin(memory.ALIGNMENT)
    taken = shared.take(3, torch.int32).copy_(torch.tensor([1, 2, 3], dtype=torch.int32))
    there = memory.Opened(shared.opening(), shared.file)
    assert there.at(shared.offset(taken), 3, torch.int32).tolist() == [1, 2, 3]
    shared.close()


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


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (Counter[str], {"rstd": 3}, Counter(rstd=3)),
        (list[int], [1, 2], [1, 2]),
        (range, [1, 3], range(1, 3)),
        (float, {"float": "inf"}, math.inf),
        (int | None, None, None),
    ],
)
def test_plain_data_is_read_back_as_what_it_stands_for(kind, value, found):
    assert from_plain(kind, value) == found
    assert type(from_plain(kind, value)) is type(found)


@pytest.mark.parametrize(
    ("kind", "value"), [(Counter[str], {"rstd": "3"}), (str, {"float": "1"}), (int, True), (list[int], [1.5])]
)
def test_plain_data_of_another_type_is_none(kind, value):
    with pytest.raises((TypeError, ValueError)):
        from_plain(kind, value)


def test_statistics_that_are_no_numbers_are_no_case_of_a_journal(tmp_path):
    journal = Journal(tmp_path / "x.jsonl", {})
    result = checks.check(CASE, TORCH, [TORCH])[0]
    journal.keep(CASE, False, [replace(result, statistics={"rows": "2"})])
    journal.close()
    with pytest.raises(UsageError, match="is no case of a journal: rows is no number, '2'"):
        Journal(tmp_path / "x.jsonl", {}, resume=True).found(CASE, False)


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


def test_a_process_whose_nursery_is_gone_has_another():
    pid = nursery.get().pid
    os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):  # the pool's server's, where it is not this process's own
        os.waitpid(pid, 0)
    time.sleep(0.1)
    found = Isolated(f"{plain.__file__}:rmsnorm", "--candidate", torch.device("cpu"), None)
    assert found.version()
    assert nursery.get().pid != pid
    found.close()


def test_where_no_memory_can_be_shared_the_tester_s_process_has_to_do(monkeypatch, capsys):
    with pytest.raises(isolation.NotShared, match="no memory of meta can be shared"):
        Isolated(f"{plain.__file__}:rmsnorm", "--candidate", torch.device("meta"), None)
    monkeypatch.setattr(isolation, "Isolated", lambda *given: (_ for _ in ()).throw(isolation.NotShared("no memory")))
    assert not isinstance(isolation.provider(f"{plain.__file__}:rmsnorm"), Isolated)
    assert "runs in the tester's process: no memory" in capsys.readouterr().err


def test_a_contract_that_is_claimed_comes_through_and_none_does_too(isolated):
    isolated._ask = lambda request: {"contract": None}
    assert isolated.claims("rmsnorm") is None
    claimed = contract("swigluoai_and_mul", "S2", alpha=1.0)
    isolated._ask = lambda request: {"contract": json.loads(json.dumps(asdict(claimed)))}
    assert isolated.claims("swigluoai_and_mul") == claimed


def test_checks_ahead_are_asked_once_and_a_process_that_is_gone_is_a_reason(isolated):
    isolated.check_ahead([CASE, CASE])
    isolated.check_ahead([CASE])
    assert isolated.check(CASE) is None
    isolated._ask = raising_for(providers.Unavailable("it was ended"))
    assert isolated.check(replace(CASE, width=5)) == "it was ended"


def raising_for(error):
    def function(*given):
        raise error

    return function


LATE = """
import threading, time
from pathlib import Path
from difftest.mutants import plain

here = Path(__file__).parent

def fused_add_rmsnorm(input, residual, weight, eps):
    plain.fused_add_rmsnorm(input, residual, weight, eps)
    threading.Thread(target=late, args=(input,), daemon=True).start()

def late(input):
    while not (here / "over").exists():
        time.sleep(0.001)
    input.zero_()
    (here / "written").touch()
"""


def test_a_thread_that_a_call_in_place_leaves_behind_is_waited_for(tmp_path, monkeypatch):
    def until_it_wrote(seconds):
        assert seconds == call.LATER
        (tmp_path / "over").touch()
        for _ in range(10_000):
            if (tmp_path / "written").exists():
                return
            time.sleep(0.001)

    monkeypatch.setattr(call, "time", SimpleNamespace(sleep=until_it_wrote))  # so that neither is ever early, or late
    (tmp_path / "late.py").write_text(LATE)
    case = Case("fused_add_rmsnorm", "bf16", (2,), 3, "normal", 1, contract("fused_add_rmsnorm"))
    found = Isolated(f"{tmp_path / 'late.py'}:fused_add_rmsnorm", "--candidate", torch.device("cpu"), None)
    called = call.call(case, found.function(case.op, case.contract), case.inputs())
    found.close()
    assert called.faults == ["output: 6 elements changed after the call was over"]


def test_a_flood_is_emptied_and_what_is_beyond_the_room_for_it_is_counted_alone(isolated, monkeypatch, tmp_path):
    monkeypatch.setattr(isolation, "FLOOD", 100)
    process, isolated.file = isolated._process, tmp_path / "printed.txt"
    os.write(process.printed.fileno(), b"x" * 200)
    process._stem()
    assert isolated._keep_printed() == "more than 100 bytes"
    isolated._printed = isolation.MOST_PRINTED
    os.write(process.printed.fileno(), b"y" * 50)
    assert isolated._keep_printed() == "50 bytes"
    assert b"y" not in isolated.file.read_bytes()


def test_how_a_process_ended_is_said():
    assert isolation._how(nursery.BY_FORCE) == "cut itself off from the tester"
    assert isolation._how(-signal.SIGSEGV) == "was ended by SIGSEGV"


def test_several_calls_of_a_process_that_is_lost_or_says_nothing_are_made_one_by_one(isolated, monkeypatch):
    function, inputs = isolated.function("rmsnorm", CASE.contract), CASE.inputs()
    call.call(CASE, function, inputs)
    for message in (b"3", b"{}"):
        monkeypatch.setattr(isolated._process, "channel", Answering(isolated._process.channel, message))
        found = call.call_all([CASE, CASE], function, [inputs, inputs])
        assert [set(each.outputs) for each in found] == [{"output"}] * 2


def test_a_channel_that_breaks_is_the_end_of_its_process(isolated, monkeypatch):
    function = isolated.function("rmsnorm", CASE.contract)
    call.call(CASE, function, CASE.inputs())
    monkeypatch.setattr(isolated._process, "channel", Answering(isolated._process.channel, ConnectionResetError("gone")))
    assert "ended its process" in call.call(CASE, function, CASE.inputs()).failure
    isolated._retire()
    isolated._retire()  # of none
    monkeypatch.setattr(isolated, "_started", raising_for(ValueError("no file")))
    with pytest.raises(providers.Unavailable, match="no file"):
        isolated._ready()


def test_what_was_returned_is_gone_with_its_process(isolated, monkeypatch):
    found = call.call(CASE, isolated.function("rmsnorm", CASE.contract), CASE.inputs())
    monkeypatch.setattr(isolated._process, "channel", Answering(isolated._process.channel, b"3"))
    assert isolated.look(found.returned) is None
    assert isolated.look(found.returned) is None
    isolated.check(replace(CASE, width=9))
    monkeypatch.setattr(isolated._process, "channel", Answering(isolated._process.channel, b"3"))
    with pytest.raises(providers.Unavailable, match="said something that is no answer when asked for its claims"):
        isolated.claims("rmsnorm")


def test_a_context_that_a_call_spoiled_ends_its_process(isolated, monkeypatch):
    function = isolated.function("rmsnorm", CASE.contract)
    call.call(CASE, function, CASE.inputs())
    first, spoiled = isolated._process, lambda answer: json.dumps({**json.loads(answer), "spoiled": 1})
    monkeypatch.setattr(first, "channel", Answering(first.channel, spoiled))
    call.call(CASE, function, CASE.inputs())
    assert isolated._process is not first


def test_a_nursery_that_is_gone_is_followed_by_another(isolated):
    os.kill(nursery.get().pid, signal.SIGKILL)
    found = call.call(CASE, isolated.function("rmsnorm", CASE.contract), CASE.inputs())
    assert set(found.outputs) == {"output"} or found.failure
    isolated._retire()
    assert isolated.check(CASE) is None
    assert set(call.call(CASE, isolated.function("rmsnorm", CASE.contract), CASE.inputs()).outputs) == {"output"}


@pytest.mark.parametrize(("times", "answers"), [(nursery.ASKED_AGAIN, True), (nursery.ASKED_AGAIN + 1, False)])
def test_nurseries_that_are_shot_one_after_the_other_are_followed_by_another_so_many_times(monkeypatch, times, answers):
    start, shot = nursery.Nursery.start, []

    def shot_first(its, *asked):
        if len(shot) < times:
            os.kill(its.pid, signal.SIGKILL)
            shot.append(its.pid)
        return start(its, *asked)

    monkeypatch.setattr(nursery.Nursery, "start", shot_first)
    if answers:
        assert isolation._Process().end(now=True) == nursery.BY_FORCE
    else:
        with pytest.raises(nursery.Gone):
            isolation._Process()
        nursery.lost()
    assert len(set(shot)) == times


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


def test_a_process_that_has_no_such_function_any_more_is_that_calls_result(isolated, monkeypatch):
    function = isolated.function("rmsnorm", CASE.contract)
    refusal = Answering(isolated._process.channel, b'{"error": "Unavailable", "text": "not today"}')
    monkeypatch.setattr(isolated._process, "channel", refusal)
    assert call.call(CASE, function, CASE.inputs()).failure == "raised not today"


class Answering:
    """A channel through which that message comes once in place of the answer."""

    def __init__(self, channel, message):
        self._channel, self._message = channel, message

    def __getattr__(self, name):
        return getattr(self._channel, name)

    def recv(self, size):
        answer, message = self._channel.recv(size), self._message
        self._message = b""
        if isinstance(message, OSError):
            raise message
        return message(answer).encode() if callable(message) else message or answer


def test_a_system_that_gives_no_more_is_the_testers_own_lack(isolated, monkeypatch):
    isolated.function("rmsnorm", CASE.contract)
    monkeypatch.setattr(isolation, "send_fds", lambda *given: (_ for _ in ()).throw(OSError(errno.EMFILE, "too many")))
    with pytest.raises(OSError, match="too many"):
        call.call(CASE, isolated.function("rmsnorm", CASE.contract), CASE.inputs())

"""A candidate's process, its requests answered here: what it says of each, and what a call changed and is put back."""

import json
import os
import pickle
import socket
import sys
import threading
from pathlib import Path

import pytest
import torch

from difftest.cases import Case
from difftest.mutants import plain
from difftest.run import buffers, host, memory, state
from difftest.run.buffers import Placed
from difftest.run.host import Asked, Place, Request
from difftest.run.state import Watch
from reference import providers
from reference.contracts import contract

CASE = Case("rmsnorm", "bf16", (2,), 3, "normal", 1, contract("rmsnorm"))
SPEC = f"{plain.__file__}:rmsnorm"


# --- requests -------------------------------------------------------------------------------------------------------------


class Room:
    """Shared memory, a call's buffers in it, and the request for that call."""

    def __init__(self, case=CASE):
        self.shared = memory.Shared(torch.device("cpu"))
        self.shared.begin(8 * buffers.room(CASE))
        given = buffers.allocate_inputs(case, case.inputs(), self.shared.take)
        self.result = self.shared.take(case.rows * case.width, torch.bfloat16)
        places = {name: self._place(buffer.placed()) for name, buffer in given.items()}
        self.request = Request(
            case.op, case.contract, places, None, (case.rows, case.width), torch.bfloat16, self.shared.offset(self.result), (1,)
        )

    def _place(self, placed: Placed):
        storage = placed.storage
        return Place(self.shared.offset(storage), storage.numel(), storage.dtype, placed.shape, placed.strides, placed.base)

    def opened(self, served):
        served.open(self.shared.opening(), os.dup(self.shared.file))


def test_a_provider_is_looked_up_and_asked():
    served = host._Served()
    assert served.resolve(SPEC, "--candidate")["name"] == SPEC
    assert served.claims("rmsnorm")["contract"]["code"] == "W0"
    asked = Asked("rmsnorm", "bf16", 3, "cpu")
    assert served.checks([asked, asked]) == {"reasons": [None, None]}
    assert served.function("rmsnorm", CASE.contract) == {"number": 0, "takes_out": True}


def test_calls_are_made_on_the_shared_memory_and_their_outputs_are_kept_until_they_are_let_go_of():
    served, room = host._Served(), Room()
    served.resolve(SPEC, "--candidate")
    served.function("rmsnorm", CASE.contract)
    room.opened(served)
    told = served.call(0, room.request)
    assert (told["complete"], told["kept"], told["faults"], told["spoiled"]) == (True, 1, [], False)
    right = plain.rmsnorm(**CASE.inputs(), eps=1e-6)
    assert torch.equal(room.result.view(2, 3), right)
    room.result.zero_()
    served.look(1, room.shared.offset(room.result))
    assert torch.equal(room.result.view(2, 3), right)
    assert [each["kept"] for each in served.calls(0, [room.request] * 2)["calls"]] == [2, 3]
    assert served.calls(0, [room.request] * 700)["calls"] == []  # more than a message holds
    with pytest.raises(KeyError):
        served.look(2, 0)


def test_a_call_that_raises_leaves_nothing_to_look_at(monkeypatch):
    served, room = host._Served(), Room()
    served._functions.append(lambda input, weight, eps: [][0])
    room.opened(served)
    told = served.call(0, room.request)
    assert (told["raised"], told["kept"], told["span"]) == (True, None, None)
    assert "IndexError" in told["failure"]
    monkeypatch.setattr(host, "Opened", lambda opening, file: (opening, file))
    served.open("a GPU's memory")  # without a descriptor
    assert served._opened == ("a GPU's memory", None)


def test_an_empty_output_is_kept_and_looked_at_without_memory():
    served, room = host._Served(), Room(Case("rmsnorm", "bf16", (0,), 3, "normal", 1, contract("rmsnorm")))
    served.resolve(SPEC, "--candidate")
    served.function("rmsnorm", CASE.contract)
    room.opened(served)
    assert served.call(0, room.request)["kept"] == 1
    assert served.look(1, 0) == {}


def test_what_a_call_says_is_clipped():
    assert host._clipped("x" * 3000) == "x" * host.LONGEST + "…"
    assert host._clipped("\ud800") == "\\ud800"


def test_a_gpu_that_a_call_spoiled_says_so(monkeypatch):
    monkeypatch.setattr(host.torch.cuda, "synchronize", lambda: None)
    assert not host._spoiled()
    monkeypatch.setattr(host.torch.cuda, "synchronize", lambda: (_ for _ in ()).throw(RuntimeError("an illegal access")))
    assert host._spoiled()


def test_what_may_be_allocated_is_half_of_what_is_there(monkeypatch, tmp_path):
    limits, (score, status) = {}, (tmp_path / "score", "VmData:	 100 kB\n")
    files = {"/proc/self/oom_score_adj": score, "/proc/self/status": tmp_path / "status", "/proc/meminfo": tmp_path / "meminfo"}
    files["/proc/self/status"].write_text(f"Name: x\n{status}")
    files["/proc/meminfo"].write_text("MemAvailable: 1000 kB\n")
    files["/sys/fs/cgroup"] = tmp_path
    monkeypatch.setattr(host, "Path", lambda name: files[name])
    monkeypatch.setattr(host.resource, "setrlimit", lambda which, limit: limits.__setitem__(which, limit[0]))
    host._limit()
    assert limits[host.resource.RLIMIT_DATA] == (100 << 10) + (1000 << 10) // 2
    assert score.read_text() == "1000"
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    host._limit()
    assert limits[host.resource.RLIMIT_DATA] == (100 << 10) + 1000


# --- the loop -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(monkeypatch):
    """What a process answers to requests, one after the other. What it sets of its process is not set here."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    monkeypatch.setattr(host, "_limit", lambda: None)
    monkeypatch.setattr(host.signal, "signal", lambda *given: None)
    monkeypatch.setattr(host.faulthandler, "disable", lambda: None)

    def answers(*requests):
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for request in requests:
            mine.send(pickle.dumps(request))
        mine.shutdown(socket.SHUT_WR)
        host.serve(its)
        with mine, its:
            return [json.loads(mine.recv(host.MOST)) for _ in requests]

    return answers


def test_errors_come_back_by_name_and_others_as_what_was_raised(served):
    found = served(("resolve", "no-such-provider", "--candidate"), ("resolve", SPEC, "--candidate"), ("look", 7, 0), ("nothing",))
    assert found[0]["error"] == "UsageError"
    assert "--candidate: 'no-such-provider' is not a choice" in found[0]["text"]
    assert found[1]["name"] == SPEC
    assert found[2]["text"].startswith("raised AssertionError")
    assert found[3]["text"].startswith("raised AttributeError")


def test_what_a_provider_has_not_is_unavailable_by_name(served, monkeypatch):
    def gone(self, call):
        raise providers.Unavailable("gone")

    monkeypatch.setattr(host._Served, "check", gone)
    assert served(("check", 1)) == [{"error": "Unavailable", "text": "gone"}]


def test_a_copy_of_the_process_ends_when_it_comes_back(served, monkeypatch):
    pids, left = iter([1, 2]), []
    monkeypatch.setattr(host.os, "getpid", lambda: next(pids, 1))
    monkeypatch.setattr(host.os, "_exit", left.append)
    served(("nothing",))
    assert left == [0]


# --- what a call changes --------------------------------------------------------------------------------------------------


CHANGES = {
    "torch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch's default device": lambda: torch.set_default_device("meta"),
    "flush-to-zero": lambda: torch.set_flush_denormal(True),
    "torch's grad mode": lambda: torch._C._set_grad_enabled(not torch.is_grad_enabled()),
    "torch's number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "the working directory": lambda: os.chdir("/"),
    "os.environ": lambda: os.environ.update(DIFFTEST_X="1"),
    "sys.modules['os']": lambda: sys.modules.pop("os"),
    "torch.nn.functional.relu": lambda: setattr(torch.nn.functional, "relu", len),
    "torch.Tensor.tolist": lambda: setattr(torch.Tensor, "tolist", len),
    "sys.stdout or sys.stderr": lambda: setattr(sys, "stdout", sys.__stderr__),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_is_named_and_put_back(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    watch = Watch()
    assert watch.changed() == []
    CHANGES[name]()
    assert watch.changed() == [name]
    assert watch.changed() == []


def test_the_guard_that_puts_inference_mode_back_lasts(monkeypatch):
    monkeypatch.setattr(state.torch._C, "_InferenceMode", lambda on: ["guard", on])
    state._infers(False)
    assert state._GUARDS.pop() == ["guard", False]


def test_a_working_directory_that_is_gone_is_another(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    watch = Watch()
    (tmp_path / "gone").rmdir()
    assert watch.changed() == ["the working directory"]


def test_a_stream_that_is_closed_leads_where_it_led():
    kept = os.dup(2)
    watch = Watch()
    try:
        os.close(2)
        assert watch.changed() == ["file descriptor 2"]
        assert watch.changed() == []
        os.fstat(2)
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_a_name_whose_value_can_not_be_compared_is_compared_one_by_one(monkeypatch):
    class Odd:
        def __eq__(self, other):
            raise ZeroDivisionError

        __hash__ = None

    watch = Watch()
    watch._names["torch.nn.functional"] = {"relu": torch.nn.functional.relu, "odd": Odd()}
    monkeypatch.setattr(torch.nn.functional, "odd", Odd(), raising=False)
    assert watch._patched() == ["torch.nn.functional.odd"]


def test_what_an_import_changed_is_told_and_stays(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    watch = Watch()
    monkeypatch.setenv("DIFFTEST_X", "1")
    monkeypatch.setattr(torch.nn.functional, "relu", len)
    os.chdir("/")
    assert watch.differs_from(Watch()) == ["the working directory", "os.environ", "torch.nn.functional.relu"]
    assert Path.cwd() == Path("/")


def test_new_threads_are_told_once():
    watch, going = Watch(), threading.Event()
    assert not watch.new_threads()
    thread = threading.Thread(target=going.wait, daemon=True)
    thread.start()
    assert watch.new_threads()
    assert not watch.new_threads()
    going.set()
    thread.join()

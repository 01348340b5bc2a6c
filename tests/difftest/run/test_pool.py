"""The pool isolates a task from the crash of another, gives up where crashes are too many, and keeps to its limits."""

import multiprocessing
import os
import signal
import time
from types import SimpleNamespace

import pytest

from difftest import interrupts
from difftest.errors import LackingError
from difftest.run import pool
from difftest.run.pool import Limits, Lost


class Squares:
    """A task is a number: its square; -1 kills the process, -2 raises, -3 takes a minute, -4 says which process it is, -5 lasts
    until `until`."""

    until = 0.0

    def begin(self, group):
        return self._do

    def name(self, task):
        return f"number {task}"

    def _do(self, task):
        if task == -1:
            os.kill(os.getpid(), signal.SIGKILL)
        if task == -2:
            raise ZeroDivisionError("no square")
        if task == -3:
            time.sleep(60)
        if task == -5:
            time.sleep(max(0.0, self.until - time.time()) + 0.01)
        return os.getpid() if task == -4 else task * task


class Dead(Squares):
    """Dies before its first task."""

    def begin(self, group):
        os.kill(os.getpid(), signal.SIGKILL)


class ShotAt(Squares):
    """Its process is killed so many times as it begins, and once more in the task; a folder keeps count."""

    def __init__(self, folder, times):
        self.folder, self.times = folder, times

    def _shot(self, most):
        marks = len(list(self.folder.iterdir()))
        if marks < most:
            (self.folder / str(marks)).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def begin(self, group):
        self._shot(self.times)
        return self._do

    def _do(self, task):
        self._shot(self.times + 1)
        return task * task


class Orphaned(ShotAt):
    """It kills the server that its process was forked from, and then the process: nobody says how it ended."""

    def _shot(self, most):
        if len(list(self.folder.iterdir())) < most:
            os.kill(os.getppid(), signal.SIGKILL)
        super()._shot(most)


def run(groups, work=None, **how):
    """What was reported, in order, and the groups that ended."""
    told, ended = [], []
    limits = how.pop("limits", None)
    pool.run(
        work or Squares(),
        groups,
        lambda group, task, answer: told.append((group, task, answer)),
        limits=limits,
        ended=lambda group, seconds: ended.append(group),
        **how,
    )
    return told, ended


@pytest.mark.parametrize("processes", [0, 1])
def test_every_task_is_answered_in_its_groups_order(processes):
    told, ended = run([[1, 2], [], [3]], processes=processes)
    assert told == [(0, 1, 1), (0, 2, 4), (2, 3, 9)]
    assert ended in ([0, 2], [0, 1, 2])


def test_a_crash_costs_its_task_and_another_process_does_the_rest_of_its_group():
    told, ended = run([[1, -1, 2], [3]], processes=1)
    assert [(group, task) for group, task, _ in told] == [(0, 1), (0, -1), (0, 2), (1, 3)]
    lost = told[1][2]
    assert lost == Lost(exit_code=-9)
    assert lost.why == "the process died (exit code -9)"
    assert ended == [0, 1]


@pytest.mark.parametrize(("times", "answer"), [(pool.BEGUN_AGAIN - 1, 49), (pool.BEGUN_AGAIN, Lost(exit_code=-9))])
def test_a_task_is_begun_again_so_many_times(tmp_path, times, answer):
    told, _ = run([[7]], ShotAt(tmp_path, times), processes=1)
    assert told == [(0, 7, answer)]


@pytest.mark.slow  # another server, which imports torch
def test_a_task_whose_process_and_server_are_killed_is_begun_again(tmp_path):
    told, _ = run([[7]], Orphaned(tmp_path, 1), processes=1)
    assert told == [(0, 7, 49)]
    assert len(list(tmp_path.iterdir())) == 2


def test_an_end_that_nobody_knows_is_taken_for_a_kill_and_another_is_not():
    made = pool._Pool(Squares(), [[7]], print, False, Limits(), print)
    worker = pool._Worker(None, None, 0, [7])
    found = [made._killed_from_outside(worker, Lost(exit_code=code)) for code in (pool.UNKNOWN, -signal.SIGKILL, 1)]
    assert found == [True, True, False]


class Shot:
    """A context whose server is gone so many times that a process is started."""

    def __init__(self, times):
        self.times = times

    def get_start_method(self):
        return "none"

    def Process(self, **given):
        return SimpleNamespace(start=self._start, given=given)

    def _start(self):
        self.times -= 1
        if self.times >= 0:
            raise (EOFError, ConnectionRefusedError)[self.times % 2]


def test_a_server_that_is_killed_while_it_starts_a_process_is_followed_by_another(monkeypatch):
    shot = Shot(2)
    monkeypatch.setattr(pool, "context", lambda: shot)
    assert pool.start(print, 1).given == {"target": print, "args": (1,)}
    shot.times = 10**9
    monkeypatch.setattr(pool, "STARTED_AGAIN", 3)
    with pytest.raises(LackingError, match="no worker can be started"):
        pool.start(print, 1)


def test_too_many_crashes_of_all_start_no_further_process():
    told, _ = run([[-1, 1], [-1, 2], [-1, 3]], processes=1, limits=Limits(crashes=2))
    assert [task for _, task, _ in told] == [-1, 1, -1]


def test_a_group_with_a_process_of_its_own_counts_its_own_crashes_and_says_what_it_gave_up():
    told, ended = run([[-1, -1, 1, 2], [3]], processes=2, own_process=True, limits=Limits(crashes=2))
    own = [answer for group, _, answer in told if group == 0]
    assert [answer.given_up for answer in own] == [0, 0, 2, 2]
    assert (1, 3, 9) in told
    assert sorted(ended) == [0, 1]


def test_groups_share_a_process_unless_each_has_its_own():
    shared = {answer for _, _, answer in run([[-4], [-4]], processes=1)[0]}
    own = {answer for _, _, answer in run([[-4], [-4]], processes=1, own_process=True)[0]}
    assert (len(shared), len(own)) == (1, 2)
    assert os.getpid() not in shared | own


def test_a_process_that_says_nothing_for_too_long_is_ended():
    told, _ = run([[-3, 1]], processes=1, limits=Limits(silence=1.0))
    assert told == [(0, -3, Lost(exit_code=told[0][2].exit_code, silent=1.0)), (0, 1, 1)]
    assert told[0][2].why == "no answer in 1 s"


def test_a_process_that_dies_before_its_first_task_is_no_fault_of_a_call():
    told, _ = run([[1]], Dead(), processes=1)
    assert told == [(0, 1, Lost(exit_code=-9, started=False))]


@pytest.mark.parametrize("processes", [0, 1])
def test_no_task_starts_after_the_deadline(processes):
    assert run([[1, 2]], processes=processes, limits=Limits(deadline=time.time() - 1))[0] == []


# A busy system takes seconds to start a process.
@pytest.mark.parametrize(("processes", "seconds"), [(0, 0.5), pytest.param(1, 5, marks=pytest.mark.slow)])
def test_the_rest_of_a_group_is_left_when_the_deadline_passes_in_it(processes, seconds):
    work = Squares()
    run([[1]], processes=processes)  # the server that workers are forked from takes seconds to start
    work.until = time.time() + seconds
    told, ended = run([[-5, 1]], work, processes=processes, limits=Limits(deadline=work.until))
    assert [task for _, task, _ in told] == [-5]
    assert ended == []


def test_what_runs_long_after_the_deadline_is_ended_without_an_answer(monkeypatch):
    told, now = [], time.time()

    def later(
        group, task, answer
    ):  # the clock is put forward once the first is done: how long processes take to start is no matter
        told.append(task)
        monkeypatch.setattr(pool.time, "time", lambda: now + 1000)

    began = time.monotonic()
    pool.run(Squares(), [[1, -3, 2]], later, processes=1, limits=Limits(deadline=now + 900, grace=2))
    assert told == [1]
    assert time.monotonic() - began < 40  # -3 takes a minute


def test_what_a_task_raises_is_the_testers_own_fault_and_is_named():
    with pytest.raises(RuntimeError, match=r"(?s)the tester failed in number -2:.*no square"):
        run([[-2]], processes=1)


def test_ctrl_c_ends_the_workers_and_is_passed_on():
    seen = []

    def interrupt(group, task, answer):
        seen.append(answer)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run(Squares(), [[-4, -3], [-3]], interrupt, processes=2)
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


@pytest.fixture
def interruptible():
    """Ctrl-C is KeyboardInterrupt, in the background too, where a shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_the_middle_of_a_start_waits_until_the_process_has_what_it_needs(interruptible, monkeypatch, number):
    kind, begun = type(pool.context().Process()), []
    start = kind.start

    def interrupted(process):
        signal.raise_signal(number)
        start(process)
        begun.append(process)

    monkeypatch.setattr(kind, "start", interrupted)
    with interrupts.on_sigterm_too(), pytest.raises(KeyboardInterrupt):
        pool.start(time.sleep, 0)
    (process,) = begun
    process.join(30)
    assert process.exitcode == 0


def test_a_worker_is_ended_whose_start_was_interrupted(interruptible, monkeypatch):
    kind, others = type(pool.context().Process()), multiprocessing.active_children()
    start = kind.start

    def interrupted(process):
        start(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(kind, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.run(Squares(), [[-3]], lambda *_: None, processes=1)
    assert not set(multiprocessing.active_children()) - set(others)

"""A child process: what it says, how it ended, and that it never outlives its parent."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from difftest.mutants.machine import child

LASTING = """
import os, time
from difftest.mutants.machine import child
child.last_answer(lambda say: (print(os.getpid(), flush=True), time.sleep(60)))
"""


def test_the_last_that_is_said_comes_back_with_the_exit_code():
    assert child.last_answer(lambda say: (say(1), say(2))) == (2, 0)
    assert child.last_answer(lambda say: None) == (None, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems tell no process of its parent's end")
def test_with_its_parent_killed_a_child_ends_too():
    parent = subprocess.Popen([sys.executable, "-c", LASTING], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid):
    """Whether a process is there and is no zombie: nobody may be there to wait for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

"""Where candidates' processes come from: a process that has imported what they need and nothing else, and forks itself.

It holds no case and no result, is not what a candidate runs in, outlives each of them and says how it ended. With the tester it
ends too, and takes those that are left with it. Tester and nursery speak through a socket: a request, an answer.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from socket import send_fds
from typing import NoReturn

import torch

from difftest import interrupts
from difftest.run import host, pool

MOST = 1 << 17  # bytes of a message
GRACE = 2.0  # seconds for a process to end by itself, once it is no longer spoken to
BY_FORCE = 256  # no exit code
SECONDS = 60.0  # for the nursery to answer: more is a fault
ASKED_AGAIN = 4  # times that a process is asked for whose nursery is gone: the next may be killed meanwhile, too


class Gone(RuntimeError):
    """The nursery does not answer: a new one is needed."""


@dataclass(slots=True)
class Nursery:
    """The tester's side."""

    channel: socket.socket
    pid: int

    def start(self, spoken_to: socket.socket, printed: int) -> int:
        """A new process that serves that end of a channel, with this process's environment, directory and module path, and
        the file descriptor for what it prints. Its id."""
        request = ("start", dict(os.environ), os.getcwd(), list(sys.path))
        return int(self._ask(request, spoken_to.fileno(), printed))

    def end(self, pid: int, *, now: bool) -> int:
        """Ends a process and those that it started, at once or after some grace. Its exit code, -N for signal N, or BY_FORCE
        where it did not end by itself."""
        return int(self._ask(("end", pid, now)))

    def _ask(self, request: object, *files: int) -> str:
        try:
            send_fds(self.channel, [pickle.dumps(request)], files)
            if not select.select([self.channel], [], [], SECONDS)[0]:
                raise Gone("no answer")
            answer = self.channel.recv(MOST).decode()
        except OSError as error:
            raise Gone(str(error)) from None
        if not answer:
            raise Gone("it ended")
        return answer


_nursery: Nursery | None = None
_owner = 0  # a forked process has none of its own yet


def get() -> Nursery:
    """This process's nursery."""
    global _nursery, _owner
    if _nursery is None or _owner != os.getpid():
        _nursery, _owner = _start(), os.getpid()
    return _nursery


def start(spoken_to: socket.socket, printed: int) -> int:
    """A new process, as `Nursery.start` makes it: of this process's nursery, and where that is gone, of the next."""
    for _ in range(ASKED_AGAIN):
        try:
            return get().start(spoken_to, printed)
        except Gone:
            lost()
    return get().start(spoken_to, printed)


def lost() -> None:
    """The nursery is gone: `get` makes another."""
    global _nursery
    if _nursery and _owner == os.getpid():
        _nursery.channel.close()
    _nursery = None


def prepare() -> None:
    """Makes the nursery now, where this process is such that it may fork: then it costs nothing. Elsewhere it waits."""
    if may_fork():
        get()


def may_fork() -> bool:
    """Whether this process has no thread but this one, and no CUDA: what can't be taken along into a copy of it."""
    if not hasattr(os, "fork") or threading.active_count() > 1 or torch.cuda.is_initialized():
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _start() -> Nursery:
    """Forked from this process, or, where it may not fork, from the pool's server."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (mine, its):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST)
    if may_fork():
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            mine.close()
            _run(its)
    else:
        pid = pool.start(_run, its).pid or 0
    its.close()
    atexit.register(lost)  # ahead of multiprocessing's own, which waits for it
    return Nursery(mine, pid)


def _run(channel: socket.socket) -> NoReturn:
    """The nursery's life."""
    interrupts.left_to_the_parent()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.closerange(3, channel.fileno())  # whatever else the tester had open: a channel ends when nobody has its other end
    os.closerange(channel.fileno() + 1, os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else 1 << 16)
    running: set[int] = set()
    code = 0
    try:
        torch.set_num_threads(1)
        while True:
            message, files, _, _ = socket.recv_fds(channel, MOST, 2)
            if not message:
                break
            what, *words = pickle.loads(message)
            answer: Callable = _START if what == "start" else _END
            channel.send(str(answer(channel, running, files, *words)).encode())
    except BaseException:
        code = 1
    finally:
        for pid in running:
            _kill(pid)
        os._exit(code)


def _START(
    channel: socket.socket, running: set[int], files: list[int], environment: dict[str, str], directory: str, path: list[str]
) -> int:
    spoken_to, printed = files
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            channel.close()
            os.setpgid(0, 0)
            for number in (1, 2):
                os.dup2(printed, number)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = path
            with suppress(OSError):
                os.chdir(directory)
            host.serve(socket.socket(fileno=spoken_to))
            code = 0
        finally:
            os._exit(code)
    running.add(pid)
    for file in files:
        os.close(file)
    return pid


def _END(channel: socket.socket, running: set[int], files: list[int], pid: int, now: bool) -> int:
    if pid not in running:
        return 0
    until = time.monotonic() + (0.0 if now else GRACE)
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended and time.monotonic() < until:
        time.sleep(0.005)
        ended, status = os.waitpid(pid, os.WNOHANG)
    _kill(pid)
    running.discard(pid)
    if not ended:
        os.waitpid(pid, 0)
        return BY_FORCE
    return os.waitstatus_to_exitcode(status)


def _kill(pid: int) -> None:
    """Ends a process and its group, which is there before the process begins to work or never."""
    for end in (os.killpg, os.kill):
        with suppress(OSError):
            end(pid, signal.SIGKILL)

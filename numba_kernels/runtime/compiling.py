"""Kernels compiled several at a time, in processes of their own, into the disk cache."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ..backend.machine_code import is_stored, machine_code

if TYPE_CHECKING:
    from ..kernels.config import Kernel


def compile_all(
    kernels: Sequence[Kernel], cc: tuple[int, int], processes: int, compiled: Callable[[], object] = lambda: None
) -> None:
    """Compile kernels for a compute capability into the disk cache, unless they are there or came with the package.

    ``compiled`` is called as each one is there. RuntimeError with the last line of a process that fails.
    """
    missing = [kernel for kernel in kernels if not is_stored(kernel, cc)]
    for _ in range(len(kernels) - len(missing)):
        compiled()
    count = min(processes, len(missing))
    package = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])}
    command = [sys.executable, "-c", f"from {__name__} import compile_those_sent; compile_those_sent()"]
    pipe = subprocess.PIPE
    running: list[subprocess.Popen[bytes]] = []

    def run(number: int) -> None:
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=said, env=environment) as child,
        ):
            running.append(child)
            assert child.stdin is not None
            assert child.stdout is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended, and says why
                child.stdin.write(pickle.dumps((missing[number::count], cc)))
                child.stdin.close()
            for _ in child.stdout:  # a line a kernel
                compiled()
            if child.wait():
                said.seek(0)
                text = said.read().decode(errors="replace").strip()
                raise RuntimeError(f"a process that compiles ended: {text.splitlines()[-1] if text else child.returncode}")

    with ThreadPoolExecutor(max(1, count)) as threads:
        try:
            list(threads.map(run, range(count)))
        except BaseException:  # an interrupt, too: nobody waits for what they still have to do
            for child in running:
                child.kill()
            raise


def compile_those_sent() -> None:
    """The life of a process of `compile_all`."""
    kernels, cc = pickle.load(sys.stdin.buffer)
    for kernel in kernels:
        machine_code(kernel, cc)
        print(flush=True)

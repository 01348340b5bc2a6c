"""Runs calls in a form on the emulator, and says what became of the kernel: its rewritten source, its optimised code."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from difftest.mutants.machine.forms import Form

COMPILES = 60  # seconds of processor time after which a compilation is given up
FIRST_NUMBER = 10**9  # of a function: those of one process have equally many digits
CALLS = 4  # and a launch, which takes hundredths: a loop that does not end


@dataclass(slots=True)
class Emulated:
    """While `host.emulate` is `run`: every kernel that was launched, and how.

    `form` None is what the emulator chooses by itself. `check` and `seed` are the emulator's: "fast" or "full", and the
    schedule's. `looks`: nothing runs, and the kernel is not compiled.
    """

    form: Form | None
    check: str = "fast"
    seed: int | None = None
    looks: bool = False
    kernels: dict[Any, Any] = field(default_factory=dict)

    def run(self, plan: Any, rows: tuple[Any, ...]) -> None:
        """As `numba_kernels.runtime.host.emulate`."""
        from numba_kernels import tuning
        from numba_kernels.backend.compile import kernel_function
        from numba_kernels.emulator import EmulatedKernel
        from numba_kernels.runtime import host

        kernel = self.form.kernel(plan) if self.form else plan.kernel(tuning.EMULATOR, (0,) * len(rows), False)
        grid, shared = plan.shape(kernel)
        if self.form:
            grid = self.form.grid(kernel, plan.rows, plan.width)
        cluster = kernel.config.cluster
        check = self.check if cluster == 1 else "fast"
        if (kernel, check) not in self.kernels:
            self.kernels[kernel, check] = EmulatedKernel(kernel_function(kernel), check=check, accepted=True)
        if self.looks:
            return
        arguments = plan.arguments(tuple(host._words(r) for r in rows))
        try:
            self.kernels[kernel, check].launch(
                grid=grid,
                block=kernel.config.threads,
                args=arguments,
                dynamic_shared_bytes=shared,
                cluster=cluster,
                schedule_seed=self.seed,
            )
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)  # what follows, a verdict or another form's source, may take its time

    def source(self) -> str:
        """What the emulator makes of the first kernel's source, with what it captures."""
        program = next(iter(self.kernels.values()))._get().program
        captured = "\n".join(f"{name} = {described(value)}" for name, value in sorted(program.captured.items()))
        return f"{program.source}\n{captured}"

    def ptx(self) -> str:
        """The first kernel's PTX, for compute capability 9.0, names apart. No GPU is needed."""
        from numba_kernels.backend.compile import compile_to_ptx

        kernel, _ = next(iter(self.kernels))
        lines = [line.partition("//")[0].rstrip() for line in compile_to_ptx(kernel, (9, 0)).splitlines()]
        return re.sub(r"B\d+v\d+|(?<=\$)\d+|0x[0-9a-f]{8,}(?=_3e)", "", "\n".join(line for line in lines if line))

    def code(self) -> str:
        """The first kernel's optimised LLVM IR, names apart."""
        entry = next(iter(self.kernels.values()))._get().entry
        return "\n".join(normalised(text) for text in entry.inspect_llvm().values())


def emulated(
    form: Form | None, check: str = "fast", seed: int | None = None, *, looks: bool = False
) -> contextlib.AbstractContextManager[Emulated]:
    """While it lasts, calls on host arrays run in the form, also where there is a GPU."""
    return resumed(Emulated(form, check, seed, looks))


@contextlib.contextmanager
def resumed(run: Emulated) -> Iterator[Emulated]:
    """The same, with what was compiled before."""
    from numba_kernels.runtime import host

    before = host.emulate, host.emulates
    host.emulate, host.emulates = run.run, lambda: True
    try:
        yield run
    finally:
        host.emulate, host.emulates = before


def isolate() -> None:
    """Makes this process one in which mutants run: nothing compiled is kept or shared, names do not tell two apart, and a launch
    that does not end takes the process down (SIGPROF).
    """
    from numba.core.bytecode import FunctionIdentity
    from numba.core.codegen import JITCodeLibrary

    from numba_kernels.emulator import compiled, disk_cache, launch, library, rewriting
    from numba_kernels.emulator.rewriting import source
    from numba_kernels.runtime import host

    FunctionIdentity._unique_ids = itertools.count(FIRST_NUMBER)  # Numba's, whose length stands in the code: of a name's bytes
    # Two ways to write the same meet.
    library.EmulatedLibrary._optimize_functions = JITCodeLibrary._optimize_functions  # type: ignore[method-assign]
    launch.MOST_REPEATED = -1  # no second run of a launch that fails, for its line
    source.is_unchanged = lambda code: True
    disk_cache.directory = lambda: None
    rewriting.tag_of = lambda function: "mutant"
    compiled._compiled.clear()
    host._emulated.cache_clear()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    compile_and_run = compiled.Compiled.run

    def run(self: Any, *args: Any) -> Any:
        if not self.entry.signatures:
            import numba
            from numba.core.errors import NumbaError

            from numba_kernels.undisturbed import undisturbed

            signal.setitimer(signal.ITIMER_PROF, COMPILES)
            with contextlib.suppress(NumbaError, TypeError, ValueError):
                undisturbed(self.entry.compile, tuple(numba.typeof(a) for a in args))
        signal.setitimer(signal.ITIMER_PROF, CALLS)
        return compile_and_run(self, *args)

    compiled.Compiled.run = run  # type: ignore[method-assign]


@functools.cache
def warm_up(form: Form, case: Any) -> None:
    """Compiles a kernel in this process, so that its children find Numba's compiler set up, which takes seconds."""
    from numba_kernels.emulator import disk_cache

    before = os.environ.get(disk_cache.VARIABLE)
    os.environ[disk_cache.VARIABLE] = ""
    try:
        with emulated(form):
            function = form.provider().function(case.op, case.contract)
            function(*case.operator.arguments(case.inputs(), case.contract))
    finally:
        os.environ.pop(disk_cache.VARIABLE)
        if before is not None:
            os.environ[disk_cache.VARIABLE] = before


def described(value: Any, depth: int = 0) -> str:
    """What a captured value is, without its address: for functions their code and what that captures in its turn."""
    if isinstance(value, tuple | list):
        return "(" + ", ".join(described(each, depth) for each in value) + ")"
    inner = getattr(value, "py_func", getattr(value, "_defn", value))
    code = getattr(inner, "__code__", None)
    if code is None or depth > 6:
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    cells = [cell.cell_contents for cell in inner.__closure__ or ()]
    constants = [c for c in code.co_consts if not hasattr(c, "co_code")]
    return f"{inner.__qualname__}:{code.co_code.hex()}:{constants}:{described(cells, depth + 1)}"


def normalised(code: str) -> str:
    """LLVM IR without comments, metadata, addresses, and the numbers that Numba gives to functions and constants; values and
    labels are numbered in each function's order. Every other name stays.
    """
    lines = [re.sub(r", !\S+ !\d+|, !\d+|;.*$", "", line).rstrip() for line in code.splitlines()]
    kept = "\n".join(line for line in lines if line and not line.startswith(("!", "source_filename", "attributes")))
    kept = re.sub(r"B\d+v\d+|(?<=pickledata\.)\d+|(?<=\$)\d+|0x[0-9a-f]{8,}(?=_3e)", "", kept)
    return "\n".join(_renumbered(part) for part in re.split(r"^(?=define )", kept, flags=re.MULTILINE))


def _renumbered(function: str) -> str:
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        label, value = match.groups()
        return numbers.setdefault(label or value, f"%{len(numbers)}") + ":" * bool(label)

    return re.sub(r'^([\w.$-]+|"[^"]+"):|%([\w.$-]+|"[^"]+")', number, function, flags=re.MULTILINE)

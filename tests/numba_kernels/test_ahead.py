"""Kernels compiled ahead of the first call: which, how, and what is refused. Needs no GPU."""

import subprocess
import sys

import numpy as np
import pytest

import numba_kernels
from numba_kernels import tuning
from numba_kernels.backend import compile as backend
from numba_kernels.backend import machine_code
from numba_kernels.declarations import OPERATORS
from numba_kernels.runtime import ahead, compiling, host, launch

H200 = tuning.Target("sm_90", shared_bytes=227 * 1024, processors=132, clusters=16, pdl=True, bulk_prefetch=True)
ROWS = [1, 16, 64, 128, 255, 256, 300, 2000, 4096, 65536]


def test_few_kernels_serve_all_numbers_of_rows():
    assert len(ahead.kernels_of(["fused_add_rmsnorm"], ["bf16"], [4096], ROWS, H200)) == 3
    assert len(ahead.kernels_of(["fused_add_rmsnorm"], ["bf16", "fp16"], [4096, 7168], ROWS, H200)) == 12


@pytest.mark.parametrize("op", OPERATORS)
def test_the_kernel_is_the_one_that_a_call_gets(op, monkeypatch):
    """A call's plan, looked at where the emulator would run it."""
    seen = []
    monkeypatch.setattr(host, "emulates", lambda: True)
    monkeypatch.setattr(host, "emulate", lambda plan, rows: seen.append(plan))
    gated = op.endswith("_and_mul")
    x = np.ones((7, 512 if gated else 256), np.float16)
    arrays = [x] if gated else [x, x.copy(), x[0].copy()] if "add" in op else [x, x[0].copy()]
    getattr(numba_kernels, op)(*arrays)
    [plan] = seen
    buffers = (0,) * len(OPERATORS[op].buffer_arguments())
    assert ahead.kernels_of([op], ["fp16"], [256], [7], H200) == [plan.kernel(H200, buffers, True)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((["rmsnorn"], ["bf16"], [8], [1]), "ops: 'rmsnorn'; fused_add_rmsnorm"),
        ((["rmsnorm"], ["bf17"], [8], [1]), "dtypes: 'bf17'; "),
        ((["rmsnorm"], ["bf16"], [0], [1]), "widths: 0; whole numbers from 1 on"),
        ((["rmsnorm"], ["bf16"], [8], [1.5]), "rows: 1.5; whole numbers from 1 on"),
    ],
)
def test_what_is_not_supported_is_named(words, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        numba_kernels.warm_up(*words)


def test_without_a_gpu_there_is_nothing_to_compile_for(monkeypatch):
    monkeypatch.setattr(launch, "device_count", lambda: 0)
    with pytest.raises(RuntimeError, match="no CUDA device"):
        numba_kernels.warm_up(["rmsnorm"], ["bf16"], [128], [1])


def test_a_process_that_fails_is_an_error_and_says_its_last_line():
    kernels = ahead.kernels_of(["silu_and_mul"], ["bf16"], [128], [1], H200)
    with pytest.raises(RuntimeError, match=r"^a process that compiles ended: .*compute capability 1.0"):
        compiling.compile_all(kernels, (1, 0), 2)


@pytest.mark.slow
def test_what_was_compiled_ahead_is_compiled_by_nobody_else(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_KERNELS_CACHE", str(tmp_path))
    kernels = ahead.kernels_of(["silu_and_mul", "rmsnorm"], ["bf16"], [128], [1], H200)
    compiling.compile_all(kernels, (9, 0), 2)
    monkeypatch.setattr(backend, "compile_to_ptx", lambda *_: pytest.fail("compiled again"))
    assert all(machine_code.machine_code(kernel, (9, 0)).cubin for kernel in kernels)


def test_what_is_stored_starts_no_process(monkeypatch):
    kernels, told = ahead.kernels_of(["silu_and_mul"], ["bf16"], [128], [1, 4], H200), []
    monkeypatch.setattr(compiling, "is_stored", lambda *_: True)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    compiling.compile_all(kernels, (9, 0), 2, lambda: told.append(1))
    assert len(told) == len(kernels) == 2


def test_importing_it_imports_no_compiler_and_no_command_line():
    unwanted = {"numba", "llvmlite", "cuda", "click", "rich"}
    code = f"import sys, numba_kernels; assert numba_kernels.warm_up; print({unwanted} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"


def test_what_the_disk_cache_has_is_launched_without_numba(tmp_path, monkeypatch):
    """Its import takes longer than all else of a process's first call."""
    monkeypatch.setenv("NUMBA_KERNELS_CACHE", str(tmp_path))
    [kernel] = ahead.kernels_of(["rmsnorm"], ["bf16"], [256], [1], H200)
    machine_code.machine_code(kernel, (9, 0))
    program = (
        "import sys\n"
        "from numba_kernels import tuning\n"
        "from numba_kernels.backend.machine_code import machine_code\n"
        "from numba_kernels.runtime import ahead, launch\n"
        f"target = tuning.{H200!r}\n"
        "[kernel] = ahead.kernels_of(['rmsnorm'], ['bf16'], [256], [1], target)\n"
        "print(len(machine_code(kernel, (9, 0)).cubin))\n"
        "print(sorted({'numba', 'llvmlite', 'torch'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    size, imported = done.stdout.splitlines()
    assert int(size) > 1000
    assert imported == "[]"

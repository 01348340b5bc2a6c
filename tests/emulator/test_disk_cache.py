"""Compiled kernels on disk: a second process finds them, a change of anything they depend on does not."""

import errno
import importlib
import importlib.util
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from numba import cuda
from numba.core.caching import IndexDataCacheFile

from numba_kernels.emulator import EmulatedKernel, UnsupportedKernel, disk_cache

PROGRAM = """
import sys
import numpy as np
from llvmlite import ir
from numba import cuda, types
from numba.extending import intrinsic
from numba_kernels.emulator import EmulatedKernel, OutOfBounds

{definitions}

x = np.arange(64.0)
kernel = EmulatedKernel(make())
kernel.launch(1, 64, (x,))
assert np.array_equal(x, {expected}), x
try:
    kernel.launch(2, 64, (x,))
except OutOfBounds as error:
    assert error.thread == 0 and error.block == (1, 0, 0) and error.line > 0, error
else:
    raise AssertionError("no error")
entry = kernel._get().entry
print(sum(entry.stats.cache_hits.values()), sum(entry.stats.cache_misses.values()))
"""

DEFINITIONS = """
@intrinsic
def add_one(typingctx, value):
    def codegen(context, builder, sig, args):
        return builder.fadd(args[0], ir.Constant(ir.DoubleType(), 1.0))
    return types.float64(types.float64), codegen

def make(factor=2):
    def kernel(x):
        t = cuda.grid(1)
        v = cuda.shfl_xor_sync(0xFFFFFFFF, x[t], 1)
        x[t] = add_one(v) * factor
    return kernel
"""


@pytest.fixture
def run(tmp_path):
    def run_program(definitions, expected):
        file = tmp_path / "program.py"
        file.write_text(textwrap.dedent(PROGRAM).format(definitions=definitions, expected=expected))
        environment = {**os.environ, disk_cache.VARIABLE: str(tmp_path / "kept"), "PYTHONPATH": os.getcwd()}
        done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run_program


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_a_changed_kernel_is_compiled_again(run):
    mirrored = "((np.arange(64) ^ 1) + 1.0) * 2"
    assert run(DEFINITIONS, mirrored) == "0 1"
    assert run(DEFINITIONS, mirrored) == "1 0"
    changed_intrinsic = DEFINITIONS.replace("1.0))", "5.0))")
    assert run(changed_intrinsic, "((np.arange(64) ^ 1) + 5.0) * 2") == "0 1"
    changed_constant = DEFINITIONS.replace("factor=2", "factor=3")
    assert run(changed_constant, "((np.arange(64) ^ 1) + 1.0) * 3") == "0 1"


def test_what_is_kept_below_a_package_leaves_the_names_of_its_kernels_as_they_are(tmp_path, monkeypatch):
    """This project's kernels are kept below its own package."""
    kept = tmp_path / "kernels_made_up" / "__pycache__" / "kernels"
    kept.mkdir(parents=True)
    (tmp_path / "kernels_made_up" / "__init__.py").write_text("def function():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("kernels_made_up").function

    def name_in_a_new_process():
        disk_cache._files.cache_clear()
        return disk_cache.digest(function)

    name = name_in_a_new_process()
    (kept / "kernel_1.py").write_text("")
    assert name_in_a_new_process() == name
    (kept.parents[1] / "source.py").write_text("")
    assert name_in_a_new_process() != name


def cut_short(file):
    file.write_bytes(file.read_bytes()[:-1])


def emptied(file):
    file.write_bytes(b"")


def a_bit_flipped(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def not_text(file):
    file.write_bytes(b"\xff\x80")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("*.nbc", a_bit_flipped),
        ("*.nbi", cut_short),
        ("*.nbc", emptied),
        ("*.sums", not_text),
    ],
)
def test_a_damaged_file_is_compiled_again_and_mended(run, tmp_path, pattern, damage):
    mirrored = "((np.arange(64) ^ 1) + 1.0) * 2"
    assert run(DEFINITIONS, mirrored) == "0 1"
    found = list((tmp_path / "kept").rglob(pattern))
    assert found
    for file in found:
        damage(file)
    assert run(DEFINITIONS, mirrored) == "0 1"
    assert run(DEFINITIONS, mirrored) == "1 0"


def test_a_disk_that_is_full_costs_time_and_nothing_else(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(IndexDataCacheFile, "_save_data", full)

    def kernel(x):
        t = cuda.grid(1)
        x[t] = x[t] * 3 + 4

    x = np.ones(32)
    EmulatedKernel(kernel).launch(1, 32, (x,))
    assert (x == 7).all()
    assert not [file for file in tmp_path.rglob("*") if file.suffix in (".nbi", ".nbc", ".sums")]


CHAINS = """
import sys
import numpy as np
from numba import cuda
from numba_kernels.emulator import EmulatedKernel

def make(factor):
    @cuda.jit(device=True)
    def chain(v):
{steps}
        return v

    def kernel(x):
        t = cuda.grid(1)
        x[t] = chain({loaded})
    return kernel, chain.py_func(1)

for factor in map(int, sys.argv[1:]):
    x = np.ones(32, np.int64)
    function, expected = make(factor)
    kernel = EmulatedKernel(function)
    kernel.launch(1, 32, (x,))
    assert (x == expected).all(), (x[0], expected)
    print(sum(kernel._get().entry.stats.cache_hits.values()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("loaded", ["x[t]", pytest.param("cuda.shfl_xor_sync(0xFFFFFFFF, x[t], 1)", marks=pytest.mark.slow)])
def test_what_two_processes_compiled_a_third_can_load_together(tmp_path, loaded):
    """Of a function that is too long to be inlined, the linker keeps the first of a name."""
    steps = "\n".join(f"        v = (v * factor + {k}) % {1009 + k}" for k in range(100))
    file = tmp_path / "program.py"
    file.write_text(CHAINS.format(loaded=loaded, steps=steps))
    environment = {**os.environ, disk_cache.VARIABLE: str(tmp_path / "kept"), "PYTHONPATH": os.getcwd()}
    for factors, hits in (("2", "0"), ("3", "0"), ("2 3", "1 1")):
        command = [sys.executable, str(file), *factors.split()]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == hits.split()


def test_a_digest_tells_values_apart_and_not_objects():
    def make(value):
        return lambda: value

    assert disk_cache.digest(make(1)) == disk_cache.digest(make(1))
    values = [1, 1.0, True, "1", None, np.float32(1), np.float64(1), (1,), ((1,),), -0.0, 0.0, np.dtype("f4"), np.float32]
    assert len({disk_cache.digest(make(v)) for v in values}) == len(values)


@pytest.mark.parametrize("most", [512, 2])
def test_what_else_is_loaded_of_a_package_changes_no_name_unless_the_package_is_large(tmp_path, monkeypatch, most):
    monkeypatch.setattr(disk_cache, "MOST_FILES", most)
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / f"made_up_of_{most}"
    package.mkdir()
    for name, text in (("__init__", ""), ("kernels", "def scale(x):\n    return 2 * x\n"), ("other", "FACTOR = 2\n")):
        (package / f"{name}.py").write_text(text)
    scale = importlib.import_module(f"{package.name}.kernels").scale
    before = disk_cache.digest(scale)
    importlib.import_module(f"{package.name}.other")
    assert (disk_cache.digest(scale) == before) is (most == 512)
    loaded = disk_cache.digest(scale)
    (package / "other.py").write_text("FACTOR = 3.0\n")
    assert disk_cache.digest(scale) != loaded


def test_what_cannot_be_digested_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path))
    assert disk_cache.entry_file("text", {"a": 1}) is not None
    assert disk_cache.entry_file("text", {"a": np.zeros(3)}) is None
    monkeypatch.setenv(disk_cache.VARIABLE, "")
    assert disk_cache.entry_file("text", {"a": 1}) is None


def test_a_function_whose_file_was_edited_since_is_refused_not_replaced_by_its_neighbour(tmp_path):
    """Two functions of one name and shape: after an edit the one's lines hold the other's text."""
    text = """from numba import cuda


def choose(double):
    if double:

        def kernel(x):
            x[cuda.threadIdx.x] *= 2

    else:

        def kernel(x):
            x[cuda.threadIdx.x] += 1

    return kernel
"""
    file = tmp_path / "edited_later.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("edited_later", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = np.ones(2, np.float32)
    EmulatedKernel(module.choose(True)).launch(1, 2, args=(before,))
    assert before.tolist() == [2, 2]
    file.write_text(text.replace("*= 2", "*= 1").replace("from numba", "\n\n\n\n\nfrom numba"))
    with pytest.raises(UnsupportedKernel, match="changed since it was imported"):
        EmulatedKernel(module.choose(False)).launch(1, 2, args=(before,))


def test_who_wants_an_entry_waits_for_the_one_that_compiles_it(tmp_path):
    file, entered = tmp_path / "kernel_1.py", threading.Event()

    def want():
        with disk_cache.locked(file):
            entered.set()

    with disk_cache.locked(file):
        other = threading.Thread(target=want)
        other.start()
        assert not entered.wait(0.2)
    other.join(10)
    assert entered.is_set()
    with disk_cache.locked(tmp_path / "no folder" / "kernel.py"), disk_cache.locked(None):
        pass  # where nothing is kept, nobody waits

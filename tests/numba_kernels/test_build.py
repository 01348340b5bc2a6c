"""Machine code that the package brings: which kernels, how it is stored, and when it is passed over. Needs no GPU."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from numba_kernels import build
from numba_kernels.backend import compiled, machine_code, shipped
from numba_kernels.backend.compiled import Compiled
from numba_kernels.declarations import OPERATORS
from numba_kernels.runtime.ahead import kernels_of

ROOT = Path(__file__).parents[2]
H200 = build.CARDS["sm_90"]
CACHED = Compiled(b"from the disk cache", "entry")


@cache
def all_kernels():
    """Those built for an H200, by operation."""
    return build.kernels_for(H200, list(OPERATORS), build.DTYPES)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder in the place of the package's; what is not there is said to come from the disk cache, which is empty."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "cubins")
    monkeypatch.setenv("NUMBA_KERNELS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(machine_code, "cached_code", lambda *_: CACHED)
    return tmp_path / "cubins"


@pytest.fixture
def kernels():
    """Of one operation."""
    return kernels_of(["fused_add_rmsnorm"], ["bf16"], [4096], [1, 600, 4096], H200.target())


def write(kernels, cc=(9, 0)):
    """Made-up code for kernels of one operation, and its file."""
    codes = {kernel: Compiled(f"cubin\n{number}".encode() * 50, f"entry{number}") for number, kernel in enumerate(kernels)}
    path = shipped.write(kernels[0].operation, cc, {repr(kernel.config): code for kernel, code in codes.items()})
    return codes, path


# --- which kernels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "gemma_rmsnorm", "silu_and_mul"])
@pytest.mark.parametrize("width", [128, 2880, 16384])
def test_every_number_of_rows_has_its_kernel_built(op, width):
    built = {kernel for kernels in all_kernels().values() for kernel in kernels}
    rows = [*range(1, 700), *range(701, 2300, 23), 3000, 4097, 10_000, 65_535, 100_000]
    assert set(kernels_of([op], ["bf16"], [width], rows, H200.target())) <= built


def test_a_gated_kernel_serves_other_widths():
    built = {kernel for kernels in all_kernels().values() for kernel in kernels}
    widths = [768, 1408, 11008, 13824, 14336, 18432, 27648, 28672]
    assert set(kernels_of(["silu_and_mul"], ["fp16"], widths, range(1, 300), H200.target())) <= built


def test_the_page_says_how_many():
    text = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    assert f"kernels ({sum(map(len, all_kernels().values()))} for sm_90)" in text


# --- the files ------------------------------------------------------------------------------------------------------------


def test_what_the_package_brings_is_what_a_kernel_gets(folder, kernels):
    codes, _ = write(kernels)
    assert [machine_code.machine_code(kernel, (9, 0)) for kernel in kernels] == list(codes.values())
    [other] = kernels_of(["fused_add_rmsnorm"], ["bf16"], [111], [1], H200.target())
    assert machine_code.machine_code(other, (9, 0)) == CACHED


def test_an_empty_folder_is_no_error(folder, kernels):
    assert machine_code.machine_code(kernels[0], (9, 0)) == CACHED


def test_an_operation_has_a_file_of_its_own():
    paths = [shipped.path_of(operation, (9, 0)) for operation in all_kernels()]
    assert len(set(paths)) == len(paths) == 36


@pytest.mark.parametrize(("runs_on", "found"), [((8, 0), True), ((8, 6), True), ((9, 0), False), ((7, 5), False)])
def test_code_serves_later_gpus_of_its_generation_alone(folder, kernels, runs_on, found):
    write(kernels, (8, 0))
    assert (shipped.shipped(kernels[0], runs_on) is not None) == found


def test_code_from_other_sources_is_never_loaded(folder, kernels, monkeypatch):
    write(kernels)
    monkeypatch.setattr(shipped, "sources", lambda: "of another day")
    assert machine_code.machine_code(kernels[0], (9, 0)) == CACHED
    assert not machine_code.is_stored(kernels[0], (9, 0))


@pytest.mark.parametrize("changed", ["kernels/norms.py", "kernels/row.py", "backend/compile.py", "formats.py"])
def test_sources_are_others_when_one_of_them_changes(changed, tmp_path, monkeypatch):
    copy = tmp_path / "numba_kernels"
    shutil.copytree(compiled.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "cubins", "emulator"))
    monkeypatch.setattr(compiled, "PACKAGE", copy)
    digest = compiled.sources.__wrapped__
    before = digest()
    assert before == compiled.sources()
    (copy / changed).write_text((copy / changed).read_text() + "\n")
    assert digest() != before


def test_a_damaged_file_is_passed_over(folder, kernels):
    _, path = write(kernels)
    whole = path.read_bytes()
    damaged = [whole[:size] for size in range(0, len(whole), 61)]
    damaged += [whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :] for at in range(0, len(whole), 7)]
    for text in damaged:
        path.write_bytes(text)
        assert machine_code.machine_code(kernels[0], (9, 0)) == CACHED


def test_who_did_not_build_it_may_read_it(folder, kernels):
    """A temporary file of Python's is its maker's alone."""
    _, path = write(kernels)
    assert path.stat().st_mode & 0o044 == 0o044
    assert [*folder.rglob("*.part")] == []


def test_a_wheel_holds_the_files():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["numba_kernels"]
    path = shipped.path_of(next(iter(all_kernels())), (9, 0)).relative_to(compiled.PACKAGE)
    assert any(path.match(pattern) for pattern in patterns)


# --- the command ----------------------------------------------------------------------------------------------------------


def call(*words):
    return CliRunner().invoke(build.main, ["--arch", "sm_90", "--ops", "silu_and_mul", "--dtypes", "bf16", *words])


@pytest.fixture
def compiler(monkeypatch):
    """What was sent to be compiled; the code is made up."""
    sent = []
    monkeypatch.setattr(build, "compile_all", lambda kernels, cc, processes, compiled: sent.append((len(kernels), cc, processes)))
    monkeypatch.setattr(build, "machine_code", lambda kernel, cc: Compiled(repr(kernel).encode(), "entry"))
    return sent


def test_it_builds_what_is_lacking(folder, compiler):
    said = [call("--processes", "3").output for _ in range(2)]
    count = int(re.fullmatch(r"sm_90 \(H100 SXM, H200\): (\d+) kernels of 2 operations, \1 built now\n", said[0])[1])
    assert said[1] == f"sm_90 (H100 SXM, H200): {count} kernels of 2 operations, 0 built now\n"
    assert compiler == [(count, (9, 0), 3), (0, (9, 0), 3)]
    [kernel] = kernels_of(["silu_and_mul"], ["bf16"], [4096], [16], H200.target(), contract="S1")
    assert machine_code.machine_code(kernel, (9, 0)).cubin == repr(kernel).encode()


def test_a_list_compiles_nothing(folder, compiler):
    assert call("--list").output.endswith(" to be built\n")
    assert compiler == []
    assert not folder.exists()


def test_where_it_never_ran_it_says_so(folder, compiler):
    assert "sm_120 (RTX PRO 6000, never run): " in call("--arch", "sm_120").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--arch", "sm_91"], "Invalid value for '--arch': 'sm_91' is not known; allowed: sm_80, sm_90, sm_100, sm_120"),
        (["--ops", "silu,rmsnorm"], "Invalid value for '--ops': 'silu' is not known; allowed: fused_add_rmsnorm, "),
        (["--dtypes", ""], "Invalid value for '--dtypes': '' is not known; allowed: bf16, fp16"),
    ],
)
def test_what_is_not_known_is_named(words, said):
    done = call(*words)
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("error", [RuntimeError("no libNVVM"), OSError("no space left")])
def test_what_is_lacking_outside_is_one_line_and_status_3(folder, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(build, "compile_all", fail)
    done = call()
    assert (done.exit_code, done.output) == (3, f"Error: sm_90: {error}\n")
    assert not folder.exists()


@pytest.mark.slow
def test_an_interrupted_build_ends_at_once(tmp_path):
    """Also where the interrupt reaches its own process alone."""
    environment = {**os.environ, "NUMBA_KERNELS_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "numba_kernels.build", "--arch", "sm_80", "--ops", "rmsnorm", "--processes", "2"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as building:
        deadline = time.monotonic() + 60
        while not [*tmp_path.glob("*.cubin")]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        building.send_signal(signal.SIGINT)
        assert building.communicate(timeout=10)[1] == "Error: sm_80: interrupted; the disk cache keeps what was compiled\n"
    assert building.returncode == 130


@pytest.mark.slow
def test_what_was_built_is_loaded_by_a_new_process_without_numba(tmp_path):
    shutil.copytree(compiled.PACKAGE, tmp_path / "numba_kernels", ignore=shutil.ignore_patterns("cubins"))
    environment = {"PATH": "", "PYTHONPATH": str(tmp_path), "NUMBA_KERNELS_CACHE": str(tmp_path / "cache")}

    def python(*words):
        return subprocess.run(
            [sys.executable, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    words = ["--arch", "sm_90", "--ops", "silu_and_mul", "--dtypes", "bf16"]
    assert python("-m", "numba_kernels.build", *words).endswith(" built now\n")
    shutil.rmtree(tmp_path / "cache")
    program = (
        "import sys\n"
        "from numba_kernels import build\n"
        "from numba_kernels.backend.machine_code import machine_code\n"
        "operations = build.kernels_for(build.CARDS['sm_90'], ['silu_and_mul'], ['bf16'])\n"
        "codes = [machine_code(kernel, (9, 0)) for kernels in operations.values() for kernel in kernels]\n"
        "print({code.cubin[:4] for code in codes}, {'numba', 'llvmlite', 'torch'} & set(sys.modules))\n"
    )
    assert python("-c", program) == "{b'\\x7fELF'} set()\n"
    assert not (tmp_path / "cache").exists()

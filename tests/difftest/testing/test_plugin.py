"""The pytest plugin in a project of its own: a folder with a kernel and its test, in which pytest finds the installed plugin."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

KERNEL = """
import torch


def rmsnorm(input, weight, eps):
    x = input.float()
    mean = x.square().mean(-1, keepdim=True)
    return (x * torch.rsqrt(mean + eps) * weight.float()).to(input.dtype)
"""
BROKEN = KERNEL.replace("x.square().mean", "x[..., 1:].square().mean")
TEST = """
from {name} import rmsnorm


def test_rmsnorm(assert_conforms):
    assert_conforms(rmsnorm, contract="W0", dtypes="bf16", widths=[3, 64], strength=0)
"""


@pytest.fixture
def project(tmp_path):
    """A project of its own; gives what writes kernels and their tests into it and runs pytest there."""
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    installed = tmp_path / "installed" / "numba_kernels_of_this_tree-0.0.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: numba_kernels_of_this_tree\nVersion: 0.0.0\n")
    lines = (f"{name} = {where}" for name, where in entry_points.items())
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")

    def run(kernels, *words):
        for name, source in kernels.items():
            (folder / f"{name}.py").write_text(source)
            (folder / f"test_{name}.py").write_text(TEST.format(name=name))
        path = os.pathsep.join([str(installed.parent), str(ROOT)])
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=240,
        )
        return found.returncode, found.stdout + found.stderr

    run.folder = folder
    return run


@pytest.mark.slow
def test_a_right_kernel_passes_and_a_broken_one_fails_with_its_histogram_and_the_shrunk_case(project):
    status, out = project({"right": KERNEL, "broken": BROKEN}, "--difftest-seed", "3")
    assert status == 1, out
    assert "1 failed, 1 passed" in out
    assert "FAILED test_broken.py" in out
    assert "does not conform" in out
    assert "rstd is off" in out
    assert "below" in out  # the histogram's heads
    assert "Shrunk: rmsnorm bf16 1x" in out
    assert "numba-kernels replay" in out
    assert "conforms.py" not in out  # nothing of the tester's own frames
    (kept,) = (project.folder / ".pytest_cache" / "d" / "difftest").iterdir()
    assert list(kept.glob("*-shrunk.json"))


def test_the_options_are_listed_and_nothing_is_imported_for_them(project):
    (project.folder / "test_light.py").write_text("import sys\n\ndef test_light():\n    assert 'torch' not in sys.modules\n")
    status, out = project({}, "--help")
    assert all(f"--difftest-{name}" in out for name in ("seed", "device", "time-budget", "failures"))
    status, out = project({})
    assert status == 0, out

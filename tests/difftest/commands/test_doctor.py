"""doctor says what is missing, and how to get it, before the first call fails; status 3 where the main job can't run."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from cuda import pathfinder

from difftest import cli
from difftest.providers import numba as numba_provider

ROOT = Path(__file__).parents[3]


@pytest.fixture
def doctor(monkeypatch):
    numba_provider.toolkit_lacks.cache_clear()
    yield lambda: CliRunner().invoke(cli.main, ["doctor"])
    numba_provider.toolkit_lacks.cache_clear()


@pytest.fixture
def a_gpu(monkeypatch):
    """torch says that there is one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a made-up GPU")


def last(result, count=2):
    return result.stdout.strip().splitlines()[-count:]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_main_job_runs_on_the_emulator(doctor):
    result = doctor()
    assert result.exit_code == 0
    assert "No GPU" in result.stdout
    assert last(result) == ["cpu: the kernels run", "The main job runs here: python cli.py difftest"]


@pytest.mark.parametrize("missing", ["nvvm", "nvrtc", "nvJitLink"])
def test_a_gpu_without_what_compiles_for_it(doctor, a_gpu, monkeypatch, missing):
    load = pathfinder.load_nvidia_dynamic_lib

    def found(name):
        if name == missing:
            raise pathfinder.DynamicLibNotFoundError(name)
        return load(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", found)
    result = doctor()
    cuda = f"cuda: lib{missing} is not found, and kernels can't be compiled: pip install 'numba-kernels[cu13]' (or [cu12])"
    assert cuda in result.stdout.splitlines()
    assert result.exit_code == 0  # the emulator still runs


def test_a_provider_that_is_missing_on_a_gpu_has_its_cure(doctor, a_gpu):
    if importlib.util.find_spec("flashinfer"):
        pytest.skip("FlashInfer is installed")
    assert "flashinfer is not installed: pip install flashinfer-python" in " ".join(doctor().stdout.split())


def test_without_numba_cuda_nothing_runs(doctor, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "numba_cuda" else find(name, *more))
    result = doctor()
    assert result.exit_code == 3
    assert last(result) == ["cpu: numba-cuda is not installed: pip install numba-cuda==0.30.4", "The main job can't run here."]


@pytest.mark.slow
def test_with_numpy_2_5_nothing_runs():
    pretend = "import numpy, runpy, sys; numpy.__version__ = '2.5.1'; sys.argv[1:] = ['doctor']"
    code = f"{pretend}; runpy.run_path('cli.py', None, '__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "pip install 'numpy<2.5'" in done.stdout
    assert done.stdout.strip().endswith("The main job can't run here.")

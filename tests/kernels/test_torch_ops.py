"""The operators in PyTorch's dispatcher, on CPU tensors."""

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from torch.library import opcheck

import numba_kernels

ops = torch.ops.numba_kernels


def tensors(rows=3, width=64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator).bfloat16() for shape in ((rows, width), (rows, width), (width,))]


def block(x, residual, weight):
    """Three operators, as a layer uses them."""
    numba_kernels.fused_add_rmsnorm(x, residual, weight)
    gated = numba_kernels.silu_and_mul(torch.cat([x, residual], -1))
    return numba_kernels.rmsnorm(gated, weight, contract="W1")


def test_torch_compile_keeps_the_operators_and_the_bits():
    x, residual, weight = tensors()
    eager_x, eager_residual = x.clone(), residual.clone()
    want = block(eager_x, eager_residual, weight)
    got = torch.compile(block, fullgraph=True, backend="aot_eager")(x, residual, weight)
    assert torch.equal(got, want)
    assert torch.equal(x, eager_x)
    assert torch.equal(residual, eager_residual)


def test_an_out_argument_is_kept_too():
    x, _, weight = tensors()
    compiled = torch.compile(lambda x, out: numba_kernels.gemma_rmsnorm(x, weight, out=out), fullgraph=True, backend="aot_eager")
    out = torch.empty_like(x)
    compiled(x, out)
    assert torch.equal(out, numba_kernels.gemma_rmsnorm(x, weight))


@pytest.mark.parametrize("name", ["fused_add_rmsnorm", "gemma_add_rmsnorm", "rmsnorm", "gemma_rmsnorm_out"])
def test_an_eps_that_is_not_passed_is_one_millionth(name):
    (eps,) = [a for a in getattr(ops, name).default._schema.arguments if a.name == "eps"]
    assert eps.default_value == 1e-6


@pytest.mark.parametrize("name", ["fused_add_rmsnorm", "add_rmsnorm", "gemma_fused_add_rmsnorm", "gemma_add_rmsnorm"])
def test_the_add_norms_pass_opcheck(name):
    opcheck(getattr(ops, name).default, tuple(tensors()))


@pytest.mark.parametrize("name", ["rmsnorm", "gemma_rmsnorm"])
def test_the_norms_pass_opcheck(name):
    x, out, weight = tensors()
    opcheck(getattr(ops, name).default, (x, weight))
    opcheck(getattr(ops, f"{name}_out").default, (out, x, weight))


@pytest.mark.parametrize("name", ["silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"])
def test_the_gated_forms_pass_opcheck(name):
    x, _, _ = tensors()
    opcheck(getattr(ops, name).default, (x,))
    opcheck(getattr(ops, f"{name}_out").default, (x.new_empty(3, 32), x))


def test_the_functional_form_leaves_its_inputs_alone():
    x, residual, weight = tensors()
    kept = x.clone(), residual.clone()
    output, new_residual = ops.add_rmsnorm(x, residual, weight)
    assert torch.equal(x, kept[0])
    assert torch.equal(residual, kept[1])
    numba_kernels.fused_add_rmsnorm(x, residual, weight)
    assert torch.equal(output, x)
    assert torch.equal(new_residual, residual)


def test_the_package_imports_without_torch_and_without_touching_cuda():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numba_kernels, numpy as np\n"
        "assert 'numba_kernels.launch' not in sys.modules\n"  # all that talks to a driver
        "print(numba_kernels.rmsnorm(np.ones((1, 4), np.float32), np.ones(4, np.float32), eps=0.0).tolist())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[[1.0, 1.0, 1.0, 1.0]]"


def test_numpy_2_5_is_refused_with_the_cure():
    code = "import numpy; numpy.__version__ = '2.5.0'\ntry:\n import numba_kernels\nexcept ImportError as error: print(error)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'numpy<2.5'" in run.stdout


def test_an_install_brings_no_numpy_that_breaks_numba_cuda():
    project = tomllib.loads((Path(numba_kernels.__file__).parent.parent / "pyproject.toml").read_text())["project"]
    needed = {r.name: r.specifier for r in map(Requirement, project["dependencies"])}
    assert not needed["numpy"].contains("2.5.0")
    assert needed["numpy"].contains(version("numpy"))
    extras = [Requirement(text) for name in ("cu12", "cu13") for text in project["optional-dependencies"][name]]
    for specifier in (needed["numba-cuda"], *(r.specifier for r in extras)):  # one version, and no other
        assert str(specifier) == f"=={version('numba-cuda')}"

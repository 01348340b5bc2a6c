"""The operators in PyTorch's dispatcher, on CPU tensors."""

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

import numba_kernels

from .rows import slow

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


@pytest.mark.parametrize("name", ["silu_and_mul", *slow("gelu_and_mul", "gelu_tanh_and_mul")])
def test_the_gated_forms_pass_opcheck(name):
    x, _, _ = tensors()
    opcheck(getattr(ops, name).default, (x,))
    opcheck(getattr(ops, f"{name}_out").default, (x.new_empty(3, 32), x))


def test_make_fx_sees_the_operator():
    x, _, weight = tensors()
    graph = make_fx(lambda x: numba_kernels.rmsnorm(x, weight))(x)
    assert ops.rmsnorm.default in [node.target for node in graph.graph.nodes]
    assert torch.equal(graph(x + 1), numba_kernels.rmsnorm(x + 1, weight))


@pytest.mark.parametrize("strict", [False, True])
def test_export_sees_the_operators(strict):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(tensors()[2])

        def forward(self, x, residual):
            return block(x.clone(), residual.clone(), self.weight)

    x, residual, weight = tensors()
    program = torch.export.export(Block(), (x, residual), strict=strict)
    assert {ops.fused_add_rmsnorm.default, ops.silu_and_mul.default, ops.rmsnorm.default} <= {
        node.target for node in program.graph.nodes
    }
    assert torch.equal(program.module()(x, residual), block(x.clone(), residual.clone(), weight))


def test_a_jit_trace_sees_the_operator():
    x, _, weight = tensors()
    traced = torch.jit.trace(lambda x: numba_kernels.rmsnorm(x, weight), (x,))
    assert torch.equal(traced(x + 1), numba_kernels.rmsnorm(x + 1, weight))


def test_a_dispatch_mode_sees_the_operators():
    class Watch(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(function)
            return function(*args, **(kwargs or {}))

    x, residual, weight = tensors()
    want = block(x.clone(), residual.clone(), weight)
    with Watch() as watch:
        got = block(x, residual, weight)
    assert torch.equal(got, want)
    assert {ops.fused_add_rmsnorm.default, ops.silu_and_mul.default, ops.rmsnorm.default} <= set(watch.seen)


def test_fake_tensors_give_fake_tensors():
    with FakeTensorMode():
        x, residual, weight = (torch.empty(shape) for shape in ((3, 64), (3, 64), (64,)))
    out = numba_kernels.rmsnorm(x, weight)
    assert isinstance(out, FakeTensor)
    assert out.shape == (3, 64)
    assert numba_kernels.fused_add_rmsnorm(x, residual, weight) is None


def test_a_distributed_tensor_is_not_taken_for_memory(tmp_path):
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        mesh = init_device_mesh("cpu", (1,))
        x, residual, weight = tensors()
        kept = residual.clone()
        with pytest.raises(RuntimeError, match="DTensor"):
            numba_kernels.fused_add_rmsnorm(distribute_tensor(x, mesh, [Shard(0)]), residual, weight)
        assert torch.equal(residual, kept)
    finally:
        torch.distributed.destroy_process_group()


def test_a_parameter_is_a_weight_in_eager_and_compiled_code():
    x, residual, weight = tensors()
    parameter = torch.nn.Parameter(weight)
    want = block(x.clone(), residual.clone(), weight)
    assert torch.equal(block(x.clone(), residual.clone(), parameter), want)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")(x.clone(), residual.clone(), parameter)
    assert torch.equal(compiled, want)
    assert not compiled.requires_grad


@pytest.mark.parametrize("operator", ["fused_add_rmsnorm", "rmsnorm", "silu_and_mul"])
def test_a_backward_pass_that_needs_what_was_overwritten_fails(operator):
    start = torch.randn(3, 64, requires_grad=True)
    saved = start * 2
    loss = saved.square().sum()
    if operator == "fused_add_rmsnorm":
        numba_kernels.fused_add_rmsnorm(torch.randn(3, 64), saved.detach(), torch.ones(64))
    elif operator == "rmsnorm":
        numba_kernels.rmsnorm(torch.randn(3, 64), torch.ones(64), out=saved.detach())
    else:
        numba_kernels.silu_and_mul(torch.randn(3, 128), saved.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ops.rmsnorm(meta(3, 64), meta(3)), "weight: shape"),
        (lambda: ops.gemma_rmsnorm_out(meta(3, 63), meta(3, 64), meta(64)), "out: shape"),
        (lambda: ops.rmsnorm(meta(3, 64, dtype=torch.int32), meta(64)), "input: dtype int32"),
        (lambda: ops.silu_and_mul(meta(3, 63)), "input: last axis of 63"),
        (lambda: ops.silu_and_mul_out(meta(3, 31), meta(3, 64)), "out: shape"),
        (lambda: ops.fused_add_rmsnorm(meta(3, 64), meta(2, 64), meta(64)), "residual: shape"),
        (lambda: ops.add_rmsnorm(meta(3, 64), meta(3, 64, dtype=torch.float16), meta(64)), "residual: fp16"),
    ],
    ids=range(7),
)
def test_dtypes_and_shapes_are_checked_without_memory_too(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def meta(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def test_the_functional_form_leaves_its_inputs_alone():
    x, residual, weight = tensors()
    kept = x.clone(), residual.clone()
    output, new_residual = ops.add_rmsnorm(x, residual, weight)
    assert torch.equal(x, kept[0])
    assert torch.equal(residual, kept[1])
    numba_kernels.fused_add_rmsnorm(x, residual, weight)
    assert torch.equal(output, x)
    assert torch.equal(new_residual, residual)


def test_the_import_brings_neither_dynamo_nor_numba():
    """They take seconds, and a process that only imports the package would pay for them."""
    code = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import numba_kernels\n"
        "print(sorted(n for n in set(sys.modules) - before if n.split('.')[0] in ('numba', 'sympy', 'cuda') or 'dynamo' in n))\n"
        "print(torch.ops.numba_kernels.rmsnorm.default._schema.name)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["[]", "numba_kernels::rmsnorm"]


@pytest.mark.slow
def test_torch_may_be_imported_after_the_package():
    code = (
        "import numba_kernels, sys\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "from torch._subclasses import FakeTensorMode\n"
        "with FakeTensorMode():\n"
        "    print(type(numba_kernels.rmsnorm(torch.empty(3, 64), torch.empty(64))).__name__)\n"
        "from numba_kernels.runtime import dispatch\n"
        "print(dispatch.under_dynamo is torch.compiler.is_dynamo_compiling)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["FakeTensor", "True"]


@pytest.mark.slow
def test_the_first_call_after_torchs_import_makes_the_operators_traceable():
    code = (
        "import numba_kernels, torch\n"
        "numba_kernels.silu_and_mul(torch.empty(0, 8))\n"
        "from numba_kernels.runtime import dispatch\n"
        "print(dispatch.under_dynamo is torch.compiler.is_dynamo_compiling, torch.ops.numba_kernels.rmsnorm.default._schema.name)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "numba_kernels::rmsnorm"]


def test_the_package_imports_without_torch_and_without_touching_cuda():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numba_kernels, numpy as np\n"
        "assert 'numba_kernels.runtime.launch' not in sys.modules\n"  # all that talks to a driver
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

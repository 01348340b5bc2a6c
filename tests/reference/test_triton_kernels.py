"""The Triton peer: within a step of its contract on a GPU; compiled for one, where Triton is installed without."""

import pytest
import torch

from difftest.verdict.ulp import distance
from reference.arithmetic import evaluate
from reference.contracts import contract
from reference.operators import OPERATORS
from reference.providers import Refused


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("width", [1, 3, 111, 4096, 40000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_it_follows_its_contract(op, width, dtype):
    kernels = pytest.importorskip("reference.providers.triton_kernels")
    which = OPERATORS[op]
    torch.manual_seed(0)
    inputs = {name: torch.randn(shape, device="cuda").to(dtype) for name, shape in which.shapes((5,), width).items()}
    want = evaluate(op, inputs, contract(op))
    returned = getattr(kernels, op)(*inputs.values())
    got = {"output": returned} if returned is not None else {"output": inputs["input"], "residual": inputs["residual"]}
    for name, reference in want.items():
        furthest = int(distance(got[name], reference).ulp.abs().max())
        assert furthest <= (0 if name == "residual" else 64 if dtype is torch.float32 else 1)


@pytest.mark.gpu
def test_writes_reach_the_callers_memory_or_are_refused():
    kernels = pytest.importorskip("reference.providers.triton_kernels")
    wide = torch.randn(4, 2, 64, device="cuda", dtype=torch.bfloat16)
    x, residual = wide[:, 0], torch.randn(4, 64, device="cuda", dtype=torch.bfloat16)
    weight = torch.ones(64, device="cuda", dtype=torch.bfloat16)
    untouched = wide[:, 1].clone()
    want = evaluate("fused_add_rmsnorm", {"input": x, "residual": residual, "weight": weight}, contract("fused_add_rmsnorm"))
    kernels.fused_add_rmsnorm(x, residual, weight)
    assert torch.equal(residual, want["residual"])
    assert torch.equal(wide[:, 1], untouched)
    with pytest.raises(Refused):
        kernels.rmsnorm(torch.randn(4, 3, 64, device="cuda").transpose(0, 1), weight)


KERNELS = ["_add_norm_kernel", "_wide_add_norm_kernel", "_norm_kernel", "_wide_norm_kernel", "_swigluoai_kernel"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_kernels_compile_to_16_byte_accesses_without_fp64(kernel):
    """For sm_90, as launched with aligned bf16 rows; needs Triton, no GPU."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from triton import compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from reference.providers import triton_kernels

    function = getattr(triton_kernels, kernel)
    names = function.arg_names
    kinds = {"BLOCK": "constexpr", "width": "i32", **dict.fromkeys(("eps", "bias", "alpha", "limit"), "fp32")}
    signature = {n: kinds.get(n, "*bf16" if n.endswith("_ptr") else "i32") for n in names}
    aligned = {(names.index(n),): [["tt.divisibility", 16]] for n in names if n.endswith(("_ptr", "_stride")) or n == "width"}
    source = ASTSource(function, signature, {(names.index("BLOCK"),): 4096}, aligned)
    ptx = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}).asm["ptx"]
    assert "ld.global.v4" in ptx
    assert "st.global.v4" in ptx
    assert ".f64" not in ptx

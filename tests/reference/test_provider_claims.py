"""Each provider against the contract it claims: nearer to that one than to any other corner of its operator."""

from types import SimpleNamespace

import pytest
import torch

from reference.arithmetic import evaluate
from reference.contracts import contract, corners
from reference.formats import of
from reference.operators import OPERATORS
from reference.providers import Refused, get, names

ROWS, WIDTH = 64, 1024


def agreement(provider, op, dtype, device, weight_dtype=None):
    """The share of output elements that equal the plain arithmetic, by contract code; and the residual's mismatches."""
    generator = torch.Generator().manual_seed(5)
    which = OPERATORS[op]
    inputs = {n: torch.randn(shape, generator=generator).to(dtype) for n, shape in which.shapes((ROWS,), WIDTH).items()}
    if weight_dtype:
        inputs["weight"] = inputs["weight"].to(weight_dtype) * 1.0001
    inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    copies = {name: tensor.clone() for name, tensor in inputs.items()}
    function = provider.function(op)
    result = function(*which.arguments(copies, contract(op)))
    output = copies["input"] if which.mutated else result
    assert output.dtype is dtype
    expected = {c.code: evaluate(op, inputs, c) for c in corners(op)}
    shares = {code: (outputs["output"] == output).double().mean().item() for code, outputs in expected.items()}
    wrong = 0
    if which.mutated:
        wrong = int((copies["residual"] != expected["R0W0"]["residual"]).sum())
    if "weight" in copies:
        assert torch.equal(copies["weight"], inputs["weight"])
    return shares, wrong


def check(name, op, dtype, device, weight_dtype=None):
    provider = get(name)
    claimed = provider.claims(op)
    if claimed is None:
        pytest.skip(f"{name} has no {op}")
    reason = provider.check(SimpleNamespace(op=op, dtype=of(dtype).name, width=WIDTH, device=device))
    if reason:
        pytest.skip(reason)
    try:
        shares, wrong = agreement(provider, op, dtype, device, weight_dtype)
    except Refused as refused:
        pytest.skip(str(refused))
    assert wrong == 0, "the new residual is bit-exact in every contract"
    others = [share for code, share in shares.items() if code != claimed.code]
    assert shares[claimed.code] > max(others), shares
    # Another corner of a norm agrees on 65 to 82 % of normal elements; order of the sum and an approximate rsqrt leave
    # over 99 %. An activation from a hardware tanh (relative error 2^-11) may agree on less, so no floor there.
    assert OPERATORS[op].activation or shares[claimed.code] > 0.99, shares


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("name", ["torch", "torch-rmsnorm", pytest.param("hf", marks=pytest.mark.slow)])
def test_a_claim_is_nearer_than_every_other_corner_on_the_cpu(name, op, dtype):
    check(name, op, dtype, "cpu")


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "gemma_fused_add_rmsnorm", "rmsnorm"])
def test_torchs_own_claim_holds_for_an_fp32_weight(op):
    check("torch-rmsnorm", op, torch.bfloat16, "cpu", weight_dtype=torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "silu_and_mul"])
def test_torch_compile_keeps_to_one_rounding_on_the_cpu(op):
    check("torch-compile", op, torch.bfloat16, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("name", names())
def test_a_claim_is_nearer_than_every_other_corner_on_the_gpu(name, op, dtype):
    check(name, op, dtype, "cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "gemma_fused_add_rmsnorm", "rmsnorm", "gemma_rmsnorm"])
@pytest.mark.parametrize("name", names())
def test_a_claim_holds_for_an_fp32_weight_on_the_gpu(name, op):
    check(name, op, torch.bfloat16, "cuda", weight_dtype=torch.float32)

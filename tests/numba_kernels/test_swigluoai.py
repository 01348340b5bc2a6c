"""swigluoai_and_mul: the clamps, the layouts of its input, its third contract, and its verdict on either device."""

import numpy as np
import pytest
import torch

import numba_kernels
from difftest.verdict.judge import judge
from reference.arithmetic import evaluate
from reference.formats import FORMATS
from reference.operators import operator
from reference.operators.contract import contract_of

from .rows import slow

OP = operator("swigluoai_and_mul")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CALLS = [("bf16", "S0"), ("bf16", "S2"), *slow(("bf16", "S1"), *[(d, c) for d in ("fp16", "fp32") for c in OP.codes])]


def rows(dtype, count=3, width=111, scale=5.0, seed=0):
    """Interleaved rows of which the clamps reach about one element in six."""
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(count, 2 * width, generator=generator)).to(FORMATS[dtype].torch)


def eager(x, alpha=1.702, limit=7.0):
    """transformers' GptOssExperts, operation by operation."""
    gate, up = x[..., ::2].clamp(min=None, max=limit), x[..., 1::2].clamp(min=-limit, max=limit)
    return (up + 1) * (gate * torch.sigmoid(gate * alpha))


def halves(x):
    return torch.cat([x[..., ::2], x[..., 1::2]], -1).contiguous()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "code"), CALLS)
@pytest.mark.parametrize("width", [111, *slow(1, 3, 4096)])
def test_it_conforms_to_every_contract_whatever_its_parameters(dtype, code, width, device):
    x = rows(dtype, width=width).to(device)
    for alpha, limit in ((1.702, 7.0), (1.0, 0.1)):
        contract = contract_of(OP, code, alpha=alpha, limit=limit)
        output = numba_kernels.swigluoai_and_mul(x, alpha, limit, contract=code)
        verdict = judge(OP, {"input": x}, {"output": output}, contract)
        assert verdict.conforms, verdict.reasons


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bf16", *slow("fp16")])
def test_the_third_contract_is_eager_pytorchs(dtype, device):
    x = rows(dtype, 8, 512).to(device)
    found = numba_kernels.swigluoai_and_mul(x, contract="S2")
    share = [(numba_kernels.swigluoai_and_mul(x, contract=code) != eager(x)).double().mean().item() for code in ("S0", "S1")]
    assert (found != eager(x)).sum() <= 2  # an approximate exp may fall on the other side of a tie
    assert min(share) > 0.1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "code"), CALLS)
def test_interleaved_and_halves_have_the_same_bits(dtype, code, device):
    for width in (111, 128):
        x = rows(dtype, width=width).to(device)
        one = numba_kernels.swigluoai_and_mul(x, contract=code)
        assert torch.equal(numba_kernels.swigluoai_and_mul(halves(x), interleaved=False, contract=code), one)
        out = torch.empty_like(one)
        assert numba_kernels.swigluoai_and_mul(x, out=out, contract=code) is out
        assert torch.equal(out, one)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "code"), CALLS)
def test_beyond_a_limit_it_is_the_limits_value_and_a_nan_goes_through(dtype, code, device):
    kind = FORMATS[dtype].torch
    above = torch.nextafter(torch.tensor(7.0, dtype=kind), torch.tensor(torch.inf, dtype=kind)).item()
    nan, inf = float("nan"), float("inf")
    gate = torch.tensor([7.0, above, inf, 1.0, 1.0, 1.0, 1.0, 1.0, nan, 1.0, -inf, -1e4])
    up = torch.tensor([1.0, 1.0, 1.0, 7.0, above, inf, -7.0, -inf, 1.0, nan, 1.0, 1.0])
    x = OP.assemble({"gate": gate.to(kind), "up": up.to(kind)})["input"].to(device)
    found = numba_kernels.swigluoai_and_mul(x, contract=code).cpu()
    assert found[0] == found[1] == found[2]
    assert found[3] == found[4] == found[5]
    assert found[6] == found[7]
    assert found.isnan().tolist() == [False] * 8 + [True] * 3 + [False]  # -Inf * sigmoid(-Inf) is NaN
    assert found[11] == 0
    assert torch.equal(found.isnan(), evaluate(OP, {"input": x.cpu()}, contract_of(OP, code))["output"].isnan())


def test_numpy_arrays_and_the_dispatcher_take_the_same_parameters():
    x = rows("fp32")
    want = numba_kernels.swigluoai_and_mul(x, 1.0, 2.0)
    assert np.array_equal(numba_kernels.swigluoai_and_mul(x.numpy(), alpha=1.0, limit=2.0), want.numpy())
    assert torch.equal(torch.ops.numba_kernels.swigluoai_and_mul(x, 1.0, 2.0), want)
    compiled = torch.compile(lambda rows: numba_kernels.swigluoai_and_mul(rows, 1.0, 2.0), fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), want)


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (ValueError, "limit: -1.0; a finite fp32 number of at least 0 is needed", {"limit": -1.0}),
        (ValueError, "alpha: nan", {"alpha": float("nan")}),
        (ValueError, "contract: 'S3'; S0, S1, S2 are supported", {"contract": "S3"}),
    ],
)
def test_what_is_no_parameter_is_refused_before_anything_is_written(error, words, options):
    out = torch.full((3, 111), 5.0)
    with pytest.raises(error, match=words):
        numba_kernels.swigluoai_and_mul(rows("fp32"), out=out, **options)
    assert (out == 5.0).all()

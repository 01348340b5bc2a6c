"""Random rows, correct fp32 kernels that differ in every liberty they have, and kernels with one fault each."""

import torch

from reference.arithmetic import biased_weight, eps_in_fp32
from reference.operators import operator

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
NORMS = ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm", "rmsnorm", "gemma_rmsnorm")
GATED = ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")


def inputs_of(op, rows, width, dtype, seed=0, scale=1.0, weight_dtype=None):
    """Normal rows of that scale; weights about 1 (about 0 for Gemma)."""
    op, generator = operator(op), torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float32)

    if op.activation:
        return {"input": (normal(rows, 2 * width) * scale).to(dtype)}
    tensors = {"input": (normal(rows, width) * scale).to(dtype)}
    if op.mutated:
        tensors["residual"] = (normal(rows, width) * scale).to(dtype)
    tensors["weight"] = (1.0 - op.weight_bias + 0.25 * normal(width)).to(weight_dtype or dtype)
    return tensors


# --- sums of squares, fp32, over the last axis ---


def library(v):
    return v.square().sum(-1, keepdim=True)


def lanes(v, count=32):
    """One lane after another adds its share in sequence, then a tree over the lanes."""
    squares = torch.nn.functional.pad(v.square(), (0, -v.shape[-1] % count))
    partial = torch.zeros(*v.shape[:-1], count)
    for step in range(squares.shape[-1] // count):
        partial = partial + squares[..., step * count : (step + 1) * count]
    while partial.shape[-1] > 1:
        half = partial.shape[-1] // 2
        partial = partial[..., :half] + partial[..., half:]
    return partial


def lanes_of_neighbours(v):
    """As `lanes`, with fused multiply-adds and each lane reading a contiguous piece."""
    padded = torch.nn.functional.pad(v, (0, -v.shape[-1] % 32)).reshape(*v.shape[:-1], 32, -1)
    partial = torch.zeros(*v.shape[:-1], 32)
    for step in range(padded.shape[-1]):
        partial = (partial.double() + padded[..., step].double().square()).float()
    while partial.shape[-1] > 1:
        partial = partial[..., ::2] + partial[..., 1::2]
    return partial


def sorted_upwards(v):
    return library(v.abs().sort(-1).values)


def in_float64(v):
    return v.double().square().sum(-1, keepdim=True).float()


SUMS = (library, lanes, lanes_of_neighbours, sorted_upwards, in_float64)


# --- roots, fp32 ---


def approximate(shift):
    """rsqrt.approx at one end of its documented error, 2^-22.9, after rounding to fp32."""

    def root(m):
        exact = 1.0 / m.double().sqrt()
        return (exact * (1.0 + shift * (2.0**-22.9 - 2.0**-24))).float()

    return root


ROOTS = (torch.rsqrt, lambda m: 1.0 / torch.sqrt(m), approximate(1), approximate(-1))


def run(op, inputs, contract, *, total=library, root=torch.rsqrt, reciprocal=False, late=False, fault=None):
    """A norm kernel in fp32: `total` sums squares, `root` is rsqrt, `reciprocal` multiplies by 1/width, `late` takes
    h * (rstd * w). `fault` names one thing to do wrong."""
    op, dtype = operator(op), inputs["input"].dtype
    outputs, hidden = {}, inputs["input"].float()
    width = hidden.shape[-1]
    if op.mutated:
        hidden = hidden + inputs["residual"].float()
        outputs["residual"] = hidden.to(dtype)
        if contract.rounds_sum:
            hidden = outputs["residual"].float()
    squared = hidden.clone()
    if fault == "drop one element":
        squared[..., -1] = 0
    if fault == "drop the middle element":
        squared[..., width // 2] = 0
    divisor = width + 1 if fault == "divide by width + 1" else width
    square_sum = total(squared)
    mean = square_sum * torch.tensor(1.0 / divisor) if reciprocal else square_sum / divisor
    eps = {"eps 1e-5": 1e-5, "no eps": 0.0}.get(fault, eps_in_fp32(contract))
    rstd = root(mean + eps)
    if fault == "rstd in bf16":
        rstd = rstd.bfloat16().float()
    if fault == "rstd in fp16":
        rstd = rstd.half().float()
    weight = biased_weight(inputs["weight"], contract)
    if fault == "weight reversed":
        weight = weight.flip(0)
    if contract.rounds_norm:
        outputs["output"] = ((hidden * rstd).to(dtype).float() * weight).to(dtype)
    elif late:
        outputs["output"] = (hidden * (rstd * weight)).to(dtype)
    else:
        outputs["output"] = (hidden * rstd * weight).to(dtype)
    if fault == "zeros":
        outputs["output"] = torch.zeros_like(outputs["output"])
    if fault == "truncates":
        outputs["output"] = _truncate(hidden * rstd * weight, dtype)
    return outputs


def _truncate(values, dtype):
    assert dtype is torch.bfloat16
    return (values.view(torch.int32) & -65536).view(torch.float32).bfloat16()

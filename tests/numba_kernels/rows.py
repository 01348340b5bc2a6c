"""Random rows for the kernel tests, and what the plain arithmetic of `reference` says of them."""

import ml_dtypes
import numpy as np
import pytest
import torch

import numba_kernels
from reference.arithmetic import evaluate, evaluate_f64
from reference.contracts import contract

DTYPES = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
NORMS = ("rmsnorm", "gemma_rmsnorm")
ADD_NORMS = ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm")
GATED = ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")


def slow(*values):
    """Parameters that repeat what others show, over more dtypes or widths: for ``-m slow``."""
    return [pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow) for value in values]


def random(shape, dtype, seed=0, scale=1.0):
    """Normal values of ``scale``, rounded to the dtype."""
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return values.astype(np.float32).astype(DTYPES.get(dtype, dtype))


def to_torch(array):
    """The same values as a torch tensor; bfloat16 goes by its bits."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def inputs_of(op, rows, width, dtype, seed=0, weight_dtype=None, scale=1.0):
    """NumPy inputs of an operator, by name."""
    if op in GATED:
        return {"input": random((rows, 2 * width), dtype, seed, scale)}
    inputs = {"input": random((rows, width), dtype, seed, scale)}
    if op in ADD_NORMS:
        inputs["residual"] = random((rows, width), dtype, seed + 1, scale)
    inputs["weight"] = random((width,), weight_dtype or dtype, seed + 2)
    return inputs


def call(op, inputs, code=None, eps=1e-6, **options):
    """Run one of our operators on copies; the outputs by name."""
    inputs = {name: array.copy() for name, array in inputs.items()}
    function = getattr(numba_kernels, op)
    if code:
        options["contract"] = code
    if op in ADD_NORMS:
        assert function(inputs["input"], inputs["residual"], inputs["weight"], eps, **options) is None
        return {"output": inputs["input"], "residual": inputs["residual"]}
    if op in NORMS:
        return {"output": function(inputs["input"], inputs["weight"], eps, **options)}
    return {"output": function(inputs["input"], **options)}


def expected(op, inputs, code="", eps=1e-6):
    """The plain arithmetic's outputs, as NumPy arrays of the storage dtype."""
    outputs = evaluate(op, {n: to_torch(a) for n, a in inputs.items()}, contract(op, code, eps=eps))
    dtype = inputs["input"].dtype
    words = {4: np.uint32, 2: np.uint16}[dtype.itemsize]
    kinds = {4: torch.int32, 2: torch.int16}[dtype.itemsize]
    return {n: t.contiguous().view(kinds).numpy().view(words).view(dtype) for n, t in outputs.items()}


def exactly(op, inputs, code="", eps=1e-6):
    """The output computed in float64 and rounded once."""
    outputs = evaluate_f64(op, {n: to_torch(a) for n, a in inputs.items()}, contract(op, code, eps=eps))
    return outputs["output"].numpy().astype(inputs["input"].dtype)


def bits(array):
    return array.view(np.uint32 if array.dtype.itemsize == 4 else np.uint16)


def steps_apart(a, b):
    """Representable steps between two arrays of finite values of one dtype, elementwise."""
    size = a.dtype.itemsize * 8
    sign = np.int64(1) << (size - 1)

    def line(x):
        word = bits(x).astype(np.int64)
        return np.where(word & sign, sign - word, word)

    return np.abs(line(a) - line(b))

"""What the gated kernels can do beyond today's operators: interleaved pairs, parameters, rounding after every operation."""

import re
from itertools import product

import numpy as np
import pytest
from numba import cuda, float32, types

from numba_kernels.emulator import EmulatedKernel
from numba_kernels.kernels import activations
from numba_kernels.kernels.config import GatedConfig, GatedOperation, TextbookGatedConfig
from numba_kernels.kernels.gated import make_gated_kernel
from numba_kernels.kernels.textbook import make_textbook_gated

from .rows import DTYPES, bits, random

PARAMETERS = (types.uint64,) * 2 + (types.int64,) * 4


def run(operation, config, x, parameters=()):
    """The output of a kernel on the emulator, for the rows of ``x``."""
    textbook = isinstance(config, TextbookGatedConfig)
    rows, width = x.shape[0], x.shape[1] // 2
    out = np.empty((rows, width), x.dtype)
    kernel = EmulatedKernel((make_textbook_gated if textbook else make_gated_kernel)(operation, config), accepted=True)
    scalars = [int(np.float32(p).view(np.uint32)) for p in parameters]
    arguments = (bits(x).reshape(-1), bits(out).reshape(-1), 2 * width, width, rows, width, *scalars)
    kernel.launch(grid=config.grid(rows, width), block=config.threads, args=arguments)
    return out


def config(vector, itemsize, **options):
    return GatedConfig(
        **{
            "vector": vector,
            "access": min(16, vector * itemsize),
            "lanes": 32,
            "rows": 1,
            "vectors": 1,
            "exact": False,
            **options,
        }
    )


def interleave(halves):
    """The same gates and ups, alternating."""
    rows, columns = halves.shape
    return np.ascontiguousarray(halves.reshape(rows, 2, columns // 2).swapaxes(1, 2).reshape(rows, columns))


slow = pytest.mark.slow
FORMS = [(4, 300, {}), (1, 111, {"rows": 2, "lanes": 16}), (2, 96, {"vectors": 2})]


@pytest.mark.parametrize(
    ("dtype", "form"),
    [pytest.param(*p, marks=slow if n else ()) for n, p in enumerate(product(DTYPES, FORMS))],
)
def test_interleaved_pairs_have_the_bits_of_the_two_halves(dtype, form):
    vector, width, options = form
    halves = random((3, 2 * width), dtype, seed=width, scale=4.0)
    chosen = config(vector, halves.dtype.itemsize, **options)
    want = run(GatedOperation("silu", dtype, "S1"), chosen, halves)
    got = run(GatedOperation("silu", dtype, "S1", interleaved=True), chosen, interleave(halves))
    assert np.array_equal(bits(got), bits(want))


@pytest.mark.slow
def test_interleaved_pairs_of_the_textbook_kernel_too():
    halves = random((3, 222), "bf16")
    want = run(GatedOperation("gelu_tanh", "bf16"), TextbookGatedConfig(64), halves)
    got = run(GatedOperation("gelu_tanh", "bf16", interleaved=True), TextbookGatedConfig(64), interleave(halves))
    assert np.array_equal(bits(got), bits(want))


@pytest.mark.parametrize(("dtype", "vector"), [("bf16", 8), ("fp32", 4)])
def test_interleaved_pairs_are_loaded_16_bytes_at_a_time(dtype, vector):
    operation = GatedOperation("silu", dtype, interleaved=True)
    kernel = make_gated_kernel(operation, GatedConfig(vector, 16, 64, 1, 1, True, pdl=True))
    ptx, _ = cuda.compile_ptx(kernel, PARAMETERS, cc=(9, 0), launch_bounds=64)
    assert len(re.findall(r"ld\.global\.", ptx)) == len(re.findall(r"ld\.global\.v4\.[bfu]32", ptx)) == 2
    assert len(re.findall(r"st\.global\.", ptx)) == len(re.findall(r"st\.global\.v4\.[bfu]32", ptx)) == 1
    assert ".f64" not in ptx
    assert ".local" not in ptx


def make_capped(storage, rounded):
    """A gate of ``first`` at most, halved, to which ``second`` is added."""

    @cuda.jit(device=True, inline="always")
    def capped(g, first, second):
        return rounded((first if g > first else g) * float32(0.3)) + second

    return capped


def make_one_more(storage, rounded):
    @cuda.jit(device=True, inline="always")
    def one_more(up, first, second):
        return rounded(up + float32(1.0))

    return one_more


@pytest.fixture
def capped(monkeypatch):
    """An activation with two parameters, in the table for one test."""
    entry = activations.Activation(make_capped, make_one_more, ("cap", "shift"))
    monkeypatch.setitem(activations.ACTIVATIONS, "capped", entry)


FAST, TEXTBOOK = config(8, 2), TextbookGatedConfig(32)


@pytest.mark.parametrize(
    ("rounding", "made"),
    [
        *(("S1", FAST), ("S2", FAST), ("S2", TEXTBOOK)),
        *(pytest.param(*each, marks=slow) for each in (("S0", FAST), ("S0", TEXTBOOK), ("S1", TEXTBOOK))),
    ],
)
def test_an_activation_has_parameters_and_rounds_after_every_operation_if_it_is_to(capped, rounding, made):
    x = random((2, 160), "bf16", scale=3.0)
    x[0, 5], x[1, 90] = np.nan, np.nan
    cap, shift = np.float32(1.7), np.float32(0.1)
    got = run(GatedOperation("capped", "bf16", rounding), made, x, (cap, shift))

    def rounded(values, when):
        return values.astype(x.dtype).astype(np.float32) if rounding in when else values

    gate, up = (half.astype(np.float32) for half in np.split(x, 2, axis=1))
    active = rounded(np.where(gate > cap, cap, gate) * np.float32(0.3), ("S2",)) + shift
    want = rounded(active, ("S1", "S2")) * rounded(up + np.float32(1.0), ("S2",))
    assert np.array_equal(got.astype(np.float32), want.astype(x.dtype).astype(np.float32), equal_nan=True)
    assert np.isnan(got[0, 5].astype(np.float32))
    assert np.isnan(got[1, 10].astype(np.float32))


def test_an_unknown_activation_is_refused_with_the_names_that_there_are():
    with pytest.raises(ValueError, match="'relu'; silu, gelu, gelu_tanh, swigluoai are supported"):
        make_gated_kernel(GatedOperation("relu", "bf16"), config(8, 2))


@pytest.mark.slow
def test_no_finite_gate_gives_nan_in_the_textbook_kernel():
    gates = np.array([[0.0, -0.0, 88.0, -88.0, 3e38, -3e38, 20.0, -20.0, 1e-40]], np.float32)
    x = np.concatenate([gates, np.ones_like(gates)], axis=1)
    for name, activation in activations.ACTIVATIONS.items():
        out = run(GatedOperation(name, "fp32"), TextbookGatedConfig(32), x, (1.702, 7.0)[: len(activation.parameters)])
        assert not np.isnan(out).any()

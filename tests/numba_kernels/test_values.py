"""What the kernels compute, on the CPU emulator: exact values, every width and dtype, every contract."""

import math

import ml_dtypes
import numpy as np
import pytest

import numba_kernels

from .rows import ADD_NORMS, DTYPES, GATED, NORMS, bits, call, exactly, expected, inputs_of, random, slow, steps_apart

BF16 = ml_dtypes.bfloat16
# On the emulator the width decides what is compiled: odd widths share a kernel, and so do multiples of 16 bytes up to 1024.
QUICK = ["bf16", "fp32", *slow("fp16")]


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("R0W0", [0.9921875, 1.453125, -1.6484375, 0.75]),
        *slow(
            ("R1W0", [0.9921875, 1.453125, -1.6484375, 0.74609375]),
            ("R0W1", [0.9921875, 1.4453125, -1.65625, 0.74609375]),
        ),
        ("R1W1", [0.9921875, 1.4609375, -1.65625, 0.74609375]),
    ],
)
def test_one_row_tells_the_four_contracts_apart(code, output):
    x = np.array(
        [[-0.5625, -0.078125, -0.109375, -1] * 2], BF16
    )  # twice: the mean is the same, and the kernel that of other tests
    residual = np.array([[4.25, 7.5, -6.5, 4] * 2], BF16)
    weight = np.array([1.484375, 1.078125, 1.375, 1.375] * 2, BF16)
    numba_kernels.fused_add_rmsnorm(x, residual, weight, contract=code)
    assert x.tolist() == [output * 2]
    assert residual.tolist() == [[3.6875, 7.4375, -6.625, 3] * 2]


@pytest.mark.parametrize(("code", "output"), [("R0W0", [0.6328125, 1.2646484375]), ("R1W0", [0.63232421875, 1.2646484375])])
def test_the_fp16_row_that_rounds_to_the_same_residual(code, output):
    x, residual = np.array([[1, 2] * 4], np.float16), np.array([[2**-11, 0] * 4], np.float16)
    numba_kernels.fused_add_rmsnorm(x, residual, np.ones(8, np.float16), contract=code)
    assert x.tolist() == [output * 4]
    assert residual.tolist() == [[1, 2] * 4]


WIDTHS = [
    *(("bf16", width) for width in (1, 3, 111, 4096)),
    ("fp32", 111),
    *slow(("fp16", 111), *(("bf16", width) for width in (3584, 16384, 32768, 131072))),
    *slow(*((dtype, width) for dtype in ("fp16", "fp32") for width in (1, 3, 3584, 4096, 16384, 32768, 131072))),
]


@pytest.mark.parametrize(("dtype", "width"), WIDTHS)
def test_every_width_gives_the_row_norm_and_a_bit_exact_residual(dtype, width):
    inputs = inputs_of("fused_add_rmsnorm", 2, width, dtype, seed=width)
    got, want = call("fused_add_rmsnorm", inputs), expected("fused_add_rmsnorm", inputs)
    assert np.array_equal(bits(got["residual"]), bits(want["residual"]))
    apart = steps_apart(got["output"], want["output"])
    assert apart.max() <= (8 if dtype == "fp32" else 1)
    if dtype != "fp32":
        assert np.count_nonzero(apart) <= 1e-3 * apart.size + 1


@pytest.mark.parametrize("width", [1, 3, 111, 128, 1024, *slow(3584, 4096)])
@pytest.mark.parametrize("op", NORMS + ADD_NORMS)
def test_the_norms_agree_with_the_plain_arithmetic(op, width):
    inputs = inputs_of(op, 3, width, "bf16", seed=7)
    got, want = call(op, inputs), expected(op, inputs)
    for name in want:
        assert steps_apart(got[name], want[name]).max() <= (name == "output")


GATED_WIDTHS = [
    *(("bf16", width) for width in (1, 3, 111, 4096)),
    *(("fp32", width) for width in (1, 3, 111)),
    *slow(("fp32", 4096), *(("fp16", width) for width in (1, 3, 111, 4096))),
]


@pytest.mark.parametrize("op", GATED)
@pytest.mark.parametrize(("dtype", "width"), GATED_WIDTHS)
def test_the_gated_forms_agree_with_the_plain_arithmetic(op, dtype, width):
    inputs = inputs_of(op, 3, width, dtype, seed=11)
    apart = steps_apart(call(op, inputs)["output"], exactly(op, inputs))
    assert apart.max() <= (4 if dtype == "fp32" else 1)


@pytest.mark.parametrize("low", [-9.5, -8.5, -7.0, -4.0, 0.0])
def test_gelu_tanh_of_a_large_negative_gate_keeps_its_fp32_bits(low):
    """The argument of its sigmoid cancels nothing, but its rounding is magnified: 36 roundings of fp32 where it is lost."""
    gate = np.linspace(low, low + 1.0, 500, dtype=np.float32)[1:]
    got = numba_kernels.gelu_tanh_and_mul(np.concatenate([gate, np.ones_like(gate)]))
    g = gate.astype(np.float64)
    want = g / (1.0 + np.exp(-2.0 * math.sqrt(2.0 / math.pi) * (g + 0.044715 * g**3)))
    roundings = np.abs(got / want - 1.0) * 2.0**24
    assert roundings.mean() < 2.0
    assert roundings.max() < 8.0


@pytest.mark.parametrize("up", [1.0, 1e6])
@pytest.mark.parametrize("gate", [-10.8, -19.99, -20.0, -20.01, -25.0, -100.0, -1e30])
def test_gelu_tanh_of_a_gate_below_its_tail_is_zero(gate, up):
    """At -10.8 the value is -4e-49, far below half of the least fp32 number; it only falls from there on."""
    assert numba_kernels.gelu_tanh_and_mul(np.array([gate, up], np.float32)).tolist() == [0.0]


SWITCHES = [  # where a kernel's form changes, and the exact function on either side of it
    ("gelu_tanh_and_mul", 20.0),
    ("gelu_tanh_and_mul", -20.0),
    ("gelu_and_mul", 0.0),  # the correction of erfc's argument begins
    ("gelu_and_mul", -20.0 * math.sqrt(2.0)),  # and ends
    ("silu_and_mul", 0.0),  # sigmoid from exp(-u), then from exp(u)
]


@pytest.mark.parametrize("up", [1.0, 1e6])
@pytest.mark.parametrize(("op", "gate"), SWITCHES)
def test_both_sides_of_a_switch_of_formula_meet(op, gate, up):
    """Twenty neighbours on either side: each within 4 ULP of the exact value, so no side steps away from the other."""
    step = float(np.spacing(np.float32(gate))) if gate else 2.0**-100  # beside 0 the products of normal numbers
    gates = np.float32(gate) + np.float32(step) * np.arange(-20, 21, dtype=np.float32)
    inputs = {"input": np.array([[each, np.float32(up)] for each in gates], np.float32)}
    assert steps_apart(call(op, inputs)["output"], exactly(op, inputs)).max() <= 4


NORM_CODES, GATED_CODES = ("R0W0", "R1W0", "R0W1", "R1W1"), ("S0", "S1")
WITH_FP32_WEIGHT = [
    (op, dtype) for op in NORMS + ADD_NORMS for dtype in ("bf16", "fp16") if (op, dtype) != ("fused_add_rmsnorm", "bf16")
]
CONTRACTS = [
    ("fused_add_rmsnorm", NORM_CODES, 512, 8, "bf16"),
    ("silu_and_mul", GATED_CODES, 4, 512, "bf16"),
    *slow(*(("fused_add_rmsnorm", NORM_CODES, 4, 512, dtype) for dtype in ("fp16", "bf16"))),
    *slow(("silu_and_mul", GATED_CODES, 4, 512, "fp16")),
]


@pytest.mark.parametrize(("op", "codes", "rows", "width", "dtype"), CONTRACTS)
def test_a_contract_is_nearer_to_itself_than_to_any_other(op, codes, rows, width, dtype):
    inputs = inputs_of(op, rows, width, dtype, seed=3)
    for code in codes:
        got = call(op, inputs, code)["output"]
        misses = {other: np.count_nonzero(bits(got) != bits(expected(op, inputs, other)["output"])) for other in codes}
        assert misses[code] <= 2
        assert min(n for other, n in misses.items() if other != code) > 100


@pytest.mark.parametrize(("op", "dtype"), [("fused_add_rmsnorm", "bf16"), *slow(*WITH_FP32_WEIGHT)])
def test_an_fp32_weight_beside_16_bit_rows_is_read_as_fp32(op, dtype):
    inputs = inputs_of(op, 2, 63, dtype, weight_dtype="fp32")
    got, want = call(op, inputs)["output"], expected(op, inputs)["output"]
    assert steps_apart(got, want).max() <= 1
    assert np.count_nonzero(steps_apart(got, want)) <= 1


def test_gemma_adds_one_to_the_weight_in_fp32():
    x = np.array([[3.0, 4.0, 5.0]], BF16)
    out = numba_kernels.gemma_rmsnorm(x, np.zeros(3, BF16), eps=0.0)
    assert out.tolist() == numba_kernels.rmsnorm(x, np.ones(3, BF16), eps=0.0).tolist()
    small = np.full(3, 2**-9, BF16)  # 1 + 2^-9 is not a bf16 value
    want = np.float32([3, 4, 5]) / np.float32(math.sqrt(50 / 3)) * np.float32(1 + 2**-9)
    assert numba_kernels.gemma_rmsnorm(x, small, eps=0.0).tolist() == [want.astype(BF16).tolist()]


def test_eps_is_inside_the_root_and_fp32():
    x = np.full((1, 8), 2e-4**0.5, np.float16)  # mean square 2e-4
    out = numba_kernels.rmsnorm(x, np.ones(8, np.float16), eps=1e-6)
    h = np.float64(x[0, 0])
    assert abs(out[0, 0] - h / math.sqrt(h * h + np.float32(1e-6))) < 2**-11


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_an_eps_that_is_nothing_in_fp16_counts(dtype):
    """1e-8 beside a mean square of 1.5e-8: rounded to fp16 it would be 0, and the output 29 % larger."""
    x = np.full((1, 8), 2.0**-13, DTYPES[dtype])
    out = numba_kernels.rmsnorm(x, np.ones(8, DTYPES[dtype]), eps=1e-8)
    assert (out == np.float64(2.0**-13 / math.sqrt(2.0**-26 + 1e-8)).astype(DTYPES[dtype])).all()


@pytest.mark.parametrize("op", NORMS + ADD_NORMS)
def test_an_eps_that_is_not_passed_is_one_millionth(op):
    """D = 32, |x| = 0.058: bfloat16's own 2^-7 would make the output 1.8 times too small. In fp32 and smaller, 1e-5 shows too."""

    def without_eps(inputs):
        arrays = [array.copy() for array in inputs.values()]
        out = getattr(numba_kernels, op)(*arrays)
        return arrays[0] if out is None else out

    signs = np.tile([1.0, -1.0], 16)[None]
    row = {"input": signs * 0.058, "residual": 0 * signs, "weight": np.full(32, 0.0 if "gemma" in op else 1.0)}
    row = {name: row[name].astype(BF16) for name in inputs_of(op, 1, 32, "bf16")}
    assert without_eps(row).tolist() == signs.tolist()
    small = inputs_of(op, 2, 32, "fp32", scale=0.02)
    assert np.array_equal(without_eps(small), call(op, small, eps=1e-6)["output"])
    assert not np.array_equal(without_eps(small), call(op, small, eps=1e-5)["output"])


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 1e2, 1e4])
def test_rows_of_any_scale_are_normalised(scale):
    inputs = inputs_of("rmsnorm", 2, 256, "bf16", scale=scale)
    assert steps_apart(call("rmsnorm", inputs)["output"], expected("rmsnorm", inputs)["output"]).max() <= 1


def test_an_fp16_row_whose_squares_overflow_fp16_is_not_zero():
    x = np.full((1, 64), 256.0, np.float16)
    assert np.all(numba_kernels.rmsnorm(x, np.ones(64, np.float16)) == 1)


@pytest.mark.parametrize("place", [0, 17, 110])
def test_a_nan_or_an_infinity_reaches_the_whole_row_and_no_other(place):
    x = random((3, 111), "bf16")
    x[1, place] = np.nan
    out = numba_kernels.rmsnorm(x, np.ones(111, BF16))
    assert np.isnan(out[1].astype(np.float32)).all()
    assert np.isfinite(out[[0, 2]].astype(np.float32)).all()
    x[1, place] = np.inf
    out = numba_kernels.rmsnorm(x, np.ones(111, BF16)).astype(np.float32)
    assert np.isnan(out[1, place])
    assert (np.delete(out[1], place) == 0).all()


NANS = {"fp32": (0x7F800001, 0x7FFFFFFF, 0xFFC00000), "fp16": (0x7C01, 0x7FFF, 0xFE00), "bf16": (0x7F81, 0x7FFF, 0xFFC0)}


def nans(op, dtype):
    """Inputs with NaNs of several bit patterns, in one input at a time: in gate and up, and in a weight of either dtype."""
    for name in inputs_of(op, 4, 21, dtype):
        for start in (0, 21) if op in GATED else (0,):
            for weight_dtype in {dtype, "fp32"} if name == "weight" else {dtype}:
                inputs = inputs_of(op, 4, 21, dtype, weight_dtype=weight_dtype)
                for k, word in enumerate(NANS[weight_dtype if name == "weight" else dtype]):
                    bits(inputs[name])[k if name == "weight" else (k, start + k)] = word
                yield inputs


@pytest.mark.parametrize("op", NORMS + ADD_NORMS + GATED)
@pytest.mark.parametrize("dtype", QUICK)
def test_no_nan_is_lost_whatever_its_bits_and_whichever_input_holds_it(op, dtype):
    for inputs in nans(op, dtype):
        got, want = call(op, inputs), expected(op, inputs)
        for name in want:
            nan = np.isnan(want[name].astype(np.float32))
            assert nan.any() or name == "residual"
            assert np.array_equal(np.isnan(got[name].astype(np.float32)), nan)


@pytest.mark.parametrize("op", GATED)
@pytest.mark.parametrize("dtype", QUICK)
def test_no_finite_gate_gives_nan(op, dtype):
    top = float(ml_dtypes.finfo(DTYPES[dtype]).max)
    gates = np.array([-top, -1e4, -100, -89, -30, -5, -0.0, 0.0, 1, 5, 30, 89, 100, 1e4, top], np.float32).astype(DTYPES[dtype])
    out = getattr(numba_kernels, op)(np.concatenate([gates, np.ones_like(gates)])[None])
    values = out.astype(np.float32)[0]
    assert np.isfinite(values).all()
    assert (values[gates.astype(np.float32) >= 30] == gates.astype(np.float32)[gates.astype(np.float32) >= 30]).all()
    assert (np.abs(values[:4]) < 1e-30).all()


def test_the_first_half_is_the_gate():
    out = numba_kernels.silu_and_mul(np.array([[0.0, 1.0, 2.0, 5.0, 7.0, 9.0]], np.float32))
    assert out[0, 0] == 0
    assert abs(out[0, 1] - 7 / (1 + math.exp(-1))) < 1e-6


def test_the_mean_divides_by_the_true_width():
    out = numba_kernels.rmsnorm(np.array([[1, 2, 3]], np.float32), np.ones(3, np.float32), eps=0.0)
    assert np.allclose(out, np.array([1, 2, 3]) / math.sqrt(14 / 3), rtol=1e-6)

"""One rounding from float64, against exact fractions."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from reference.rounding import round_from_f64

FORMATS = {torch.float16: (10, -14, 15), torch.bfloat16: (7, -126, 127), torch.float32: (23, -126, 127)}


def nearest(value: float, dtype: torch.dtype) -> float:
    """The nearest value of `dtype`, ties to even, by exact fractions."""
    fraction_bits, smallest, largest = FORMATS[dtype]
    if value == 0.0:
        return value
    exact = abs(Fraction(value))
    exponent = max(math.frexp(value)[1] - 1, smallest)
    ulp = Fraction(2) ** (exponent - fraction_bits)
    steps, rest = divmod(exact, ulp)
    if rest * 2 > ulp or (rest * 2 == ulp and steps % 2):
        steps += 1
    rounded = steps * ulp
    beyond = Fraction(2) ** (largest + 1)
    return math.copysign(math.inf if rounded >= beyond else float(rounded), value)


def same(a: float, b: float) -> bool:
    return a == b and math.copysign(1, a) == math.copysign(1, b)


@pytest.mark.parametrize("dtype", FORMATS)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
@example(value=1 + 2.0**-8 + 2.0**-40)  # just above a bf16 tie, on it in fp32
@example(value=1 + 2.0**-8)
@example(value=1 + 2.0**-11 + 2.0**-40)
@example(value=65519.999999999)
@example(value=65520.0)
@example(value=2.0**-134 * (1 + 2.0**-40))
@example(value=2.0**-25)
@example(value=-5e-324)
@example(value=-0.0)
@example(value=1.7976931348623157e308)
def test_float64_rounds_to_the_nearest_value_once(dtype, value):
    got = round_from_f64(torch.tensor([value], dtype=torch.float64), dtype)
    assert got.dtype is dtype
    assert same(got.double().item(), nearest(value, dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(bits=st.integers(0, 0x7BFE), nudge=st.sampled_from([-(2.0**-60), 0.0, 2.0**-60]))
def test_ties_and_their_neighbours_go_the_right_way(dtype, bits, nudge):
    low, high = (torch.tensor([b], dtype=torch.int16).view(dtype).double().item() for b in (bits, bits + 1))
    value = (low + high) / 2 * (1 + nudge)
    got = round_from_f64(torch.tensor([value], dtype=torch.float64), dtype).double().item()
    assert got == nearest(value, dtype)


def test_torchs_own_conversion_to_bfloat16_rounds_twice():
    """The reason for this module; when it fails, torch has changed and the module may go."""
    just_above_a_tie = torch.tensor([1 + 2.0**-8 + 2.0**-40], dtype=torch.float64)
    assert just_above_a_tie.bfloat16().item() == 1.0
    assert round_from_f64(just_above_a_tie, torch.bfloat16).item() == 1.0078125


def test_infinities_and_nan_pass_through():
    special = torch.tensor([math.inf, -math.inf, math.nan], dtype=torch.float64)
    got = round_from_f64(special, torch.bfloat16)
    assert got[:2].tolist() == [math.inf, -math.inf]
    assert got[2].isnan()


def test_other_dtypes_are_refused():
    with pytest.raises(TypeError, match="float64"):
        round_from_f64(torch.ones(1), torch.bfloat16)
    with pytest.raises(TypeError, match="float64"):
        round_from_f64(torch.ones(1, dtype=torch.float64), torch.float64)

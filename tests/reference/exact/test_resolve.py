"""One element exactly: beside a tie, where no float64 can tell, both sides of it come out."""

import math
from functools import partial

import mpmath
import pytest
import torch

from reference.exact.activations import ACTIVATIONS
from reference.exact.resolve import gated_value, norm_value, square_sum

BF16, FP32 = torch.bfloat16, torch.float32
FACTORS = {name: each.to_any_precision for name, each in ACTIVATIONS.items()} | {
    "swish": partial(ACTIVATIONS["swish"].to_any_precision, alpha=1.702)
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_factor_just_below_one_leaves_a_tie_on_its_lower_side(name):
    """At a gate of 20 the factor is 1 - 2e-9 or nearer: times a tie of bf16 it rounds down, whatever is even."""
    factor = FACTORS[name]
    for odd in (0, 1):
        below, tie = 1.0 + odd * 2.0**-7, 1.0 + odd * 2.0**-7 + 2.0**-8
        assert gated_value(factor, 20.0, tie, BF16) == below
        assert gated_value(factor, 20.0, -tie, BF16) == -below


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("gate", [-30.0, -3.0, -1e-20, 1e-20, 0.7, 5.0])
def test_an_ordinary_element_is_the_value_rounded(name, gate):
    factor = FACTORS[name]
    with mpmath.workprec(200):
        exact = float(factor(mpmath.mpf(gate)) * gate)  # 53 bits, no tie of 24
    assert gated_value(factor, gate, gate, FP32) == torch.tensor(exact, dtype=torch.float64).float().item()


def test_a_zero_keeps_its_sign():
    assert math.copysign(1, gated_value(ACTIVATIONS["silu"].to_any_precision, -1.0, -0.0, BF16)) == -1


def test_a_factor_that_cannot_be_told_from_a_tie_is_an_error():
    with pytest.raises(ArithmeticError, match="beside a tie"):
        gated_value(lambda gate: mpmath.mpf(1), 1.0, 1.0 + 2.0**-8, BF16)


def test_a_root_that_is_a_tie_goes_to_the_even_neighbour_and_one_beside_it_does_not():
    row = [3.0, 4.0, 0.0, 0.0]  # mean square 6.25, root 2.5
    squares = square_sum(row)
    for odd, to in ((0, 1.0), (1, 1.0 + 2.0**-6)):
        tie = 1.0 + odd * 2.0**-7 + 2.0**-8
        assert norm_value(2.5, tie, squares, 4, 0.0, BF16) == to
        assert norm_value(2.5, tie, squares, 4, 2.0**-149, BF16) == 1.0 + odd * 2.0**-7

"""The regime `binades`: in as many rows as it asks for, no binade of the format is left out, nor one of the sum."""

import pytest
import torch

from difftest.cases import Case, binades
from reference.contracts import contract
from reference.formats import FORMATS

OPERATORS = ("rmsnorm", "fused_add_rmsnorm", "silu_and_mul", "swigluoai_and_mul")
WIDTHS = (1, 2, 7, 500, 5000)


def drawn(op, dtype, width, seed=3):
    """The values by role, float64, and the exponents of all binades."""
    case = Case(op, dtype, (0,), width, "binades", seed, contract(op))
    own = case.format
    rows = binades.rows_for(case.operator, own, width)
    inputs = Case(op, dtype, (rows,), width, "binades", seed, contract(op)).inputs()
    values = {role: v.double() for role, v in case.operator.split(inputs).items() if role in case.operator.roles}
    lowest = own.smallest_exponent - own.fraction_bits  # of the smallest subnormal
    return values, set(range(lowest, int(torch.frexp(torch.tensor(own.largest).double()).exponent)))


def exponents(values):
    return set((torch.frexp(values[values != 0]).exponent - 1).tolist())


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_binade_of_every_role_occurs(op, dtype, width):
    values, every = drawn(op, dtype, width)
    for role, of_role in values.items():
        assert every <= exponents(of_role), role
        assert bool((of_role < 0).any())
        assert bool((of_role > 0).any())


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_binade_of_the_sum_occurs(dtype, width):
    values, every = drawn("fused_add_rmsnorm", dtype, width)
    assert exponents(values["input"] + values["residual"]) == every


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_binade_of_a_factor_occurs_with_both_signs(dtype, width):
    values, every = drawn("silu_and_mul", dtype, width)
    for of_role in values.values():
        assert every <= exponents(of_role[of_role > 0]) & exponents(of_role[of_role < 0])


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("op", ["rmsnorm", "fused_add_rmsnorm"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_binade_whose_square_is_finite_occurs_in_a_row_whose_sum_of_squares_is(op, dtype, width):
    for seed in range(20):
        values, every = drawn(op, dtype, width, seed)
        total = sum(values.values())
        sums = total.square().sum(-1)
        finite = sums < 0.95 * 2.0**128  # nearer to the end two values are right
        assert {e for e in every if e < binades.SQUARE_OVERFLOWS} <= exponents(total[finite])

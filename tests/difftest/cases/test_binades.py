"""The regime `binades`: in as many rows as it asks for, no binade of the format is left out."""

import pytest
import torch

from difftest.cases import Case, binades
from reference.contracts import contract
from reference.formats import FORMATS


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("op", ["rmsnorm", "fused_add_rmsnorm", "silu_and_mul", "swigluoai_and_mul"])
@pytest.mark.parametrize("width", [1, 7, 500, 5000])
def test_every_binade_of_every_role_occurs(op, dtype, width):
    case = Case(op, dtype, (0,), width, "binades", 3, contract(op))
    own = case.format
    rows = binades.rows_for(case.operator, own, width)
    values = case.operator.split(Case(op, dtype, (rows,), width, "binades", 3, contract(op)).inputs())
    lowest = own.smallest_exponent - own.fraction_bits  # of the smallest subnormal
    highest = int(torch.frexp(torch.tensor(own.largest).double()).exponent)
    for role in case.operator.roles:
        finite = values[role].double()
        exponents = torch.frexp(finite[finite != 0]).exponent - 1
        assert set(range(lowest, highest)) <= set(exponents.tolist()), role
        assert bool((finite < 0).any())
        assert bool((finite > 0).any())

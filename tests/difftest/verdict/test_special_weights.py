"""A weight that is Inf or NaN, times what fp32 makes 0: NaN, which is no fault of the kernel."""

import pytest
import torch

from difftest.verdict import judge
from reference.arithmetic import evaluate
from reference.contracts import contract

INF = float("inf")
WEIGHT = [1.0, INF, float("nan"), 1.0, -INF]
OVERFLOWS = [2.0**100, 2.0**60, -1.0, 2.0**90, 2.0**-100]  # the sum of squares is Inf in fp32, every finite output 0
UNDERFLOWS = [2.0**50, 2.0**-133, 1.0, 2.0**40, -(2.0**-126)]  # h * rstd is 0 in fp32 where the weight is Inf


@pytest.mark.parametrize("code", ["W0", "W1"])
@pytest.mark.parametrize("row", [OVERFLOWS, UNDERFLOWS])
def test_plain_fp32_arithmetic_conforms(row, code):
    inputs = {"input": torch.tensor([row]).bfloat16(), "weight": torch.tensor(WEIGHT).bfloat16()}
    held_to = contract("rmsnorm", code)
    outputs = evaluate("rmsnorm", inputs, held_to)
    assert bool(outputs["output"][0, 1].isnan())
    assert judge("rmsnorm", inputs, outputs, held_to).reasons == ()


@pytest.mark.parametrize("column", [0, 3])
def test_a_number_in_place_of_what_vanishes_is_still_found(column):
    inputs = {"input": torch.tensor([OVERFLOWS]).bfloat16(), "weight": torch.tensor(WEIGHT).bfloat16()}
    outputs = evaluate("rmsnorm", inputs, contract("rmsnorm"))
    outputs["output"][0, column] = 42.0
    assert not judge("rmsnorm", inputs, outputs, contract("rmsnorm")).conforms

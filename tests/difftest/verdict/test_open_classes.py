"""Which classes are open: an infinite factor times an activation that rounding may make 0."""

import pytest
import torch

from difftest.verdict.judge import judge
from reference.operators.contract import contract_of

TINY = 2.0**-24  # fp16's smallest number; silu and gelu of it are just above half of it, a tie, and exactly half of it in fp32


@pytest.mark.parametrize("op", ["silu_and_mul", "gelu_and_mul"])
@pytest.mark.parametrize(
    ("code", "dtype", "is_open"), [("S1", torch.float16, True), ("S0", torch.float16, False), ("S1", torch.bfloat16, False)]
)
def test_inf_times_what_is_stored_as_0_or_not_may_be_nan(op, code, dtype, is_open):
    pair = {"input": torch.tensor([[TINY, torch.inf]], dtype=dtype)}
    for value, conforms in ((torch.inf, True), (torch.nan, is_open)):
        assert judge(op, pair, {"output": torch.tensor([[value]], dtype=dtype)}, contract_of(op, code)).conforms == conforms

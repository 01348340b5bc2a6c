"""A product that is subnormal in fp32 is rounded there and again when it is stored: what that gives is no fault."""

import pytest
import torch

from difftest.verdict import judge
from reference.contracts import contract


@pytest.mark.parametrize("associated", [lambda h, rstd, w: h * rstd * w, lambda h, rstd, w: h * (rstd * w)])
def test_weights_that_make_subnormal_products_are_no_difference(associated):
    generator = torch.Generator().manual_seed(0)
    meant = contract("rmsnorm", eps=1e-3)
    rows = (1e-4 * torch.randn(64, 4096, generator=generator)).bfloat16()
    weight = (torch.finfo(torch.bfloat16).smallest_normal * (1 + 3 * torch.rand(4096, generator=generator))).bfloat16()
    h = rows.float()
    rstd = torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-3)
    output = (associated(h, rstd, weight.float())).bfloat16()
    inputs = {"input": rows, "weight": weight}
    assert judge("rmsnorm", inputs, {"output": output}, meant).reasons == ()
    assert judge("rmsnorm", inputs, {"output": 2 * output}, meant).reasons

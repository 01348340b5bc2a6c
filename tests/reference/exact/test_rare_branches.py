"""What few inputs come to: a gated product just beside a tie, no rows, terms that nobody knows."""

import pytest
import torch

from difftest.verdict import judge
from difftest.verdict.bias import leaning
from reference.contracts import contract
from reference.exact import attainable, oracle
from reference.operators import OPERATORS


@pytest.mark.parametrize("up", [3.0, -3.0])
def test_a_gated_product_that_float64_takes_for_a_tie_is_rounded_by_the_side_that_it_lies_on(up):
    """silu(129) = 129 (1 - 9e-57): times 3 it lies just below 387, in bf16 a tie that would go to the even 388."""
    op = OPERATORS["silu_and_mul"]
    inputs, held_to = {"input": torch.tensor([[129.0, up]], dtype=torch.bfloat16)}, contract("silu_and_mul")
    right = oracle.correctly_rounded(op, inputs, held_to).outputs["output"]
    assert right.tolist() == [[386.0 if up > 0 else -386.0]]
    assert torch.tensor(387.0).bfloat16() == 388
    for value, conforms in ((386.0, True), (388.0, True), (384.0, False)):  # fp32 has no number between 129 and silu(129)
        output = {"output": torch.tensor([[value if up > 0 else -value]], dtype=torch.bfloat16)}
        assert judge(op, inputs, output, held_to).conforms == conforms, value


@pytest.mark.parametrize("op", ["silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "swigluoai_and_mul"])
def test_what_float64_leaves_in_doubt_is_resolved_to_the_same_value(op, monkeypatch):
    """No pair of numbers is known for which it does; here its bounds are widened until every element is in doubt."""
    inputs, held_to = {"input": torch.randn(2, 16, generator=torch.Generator().manual_seed(0)).bfloat16()}, contract(op)
    right = oracle.correctly_rounded(op, inputs, held_to)
    monkeypatch.setattr(oracle, "enclose", lambda argument, factor, error, product: (0.0 * product, 4.0 * product.abs()))
    resolved = oracle.correctly_rounded(op, inputs, held_to)
    assert (right.undecided, resolved.undecided) == (0, 16)
    assert torch.equal(resolved.outputs["output"], right.outputs["output"])


@pytest.mark.parametrize(("up", "right"), [(0.0, -0.0), (-0.0, 0.0)])
def test_the_sign_of_a_gated_zero_is_judged_where_no_form_of_the_activation_cancels(up, right):
    inputs, held_to = {"input": torch.tensor([[-1.0, up]]).bfloat16()}, contract("silu_and_mul")
    for value in (0.0, -0.0):
        verdict = judge(OPERATORS["silu_and_mul"], inputs, {"output": torch.tensor([[value]]).bfloat16()}, held_to)
        assert verdict.conforms == (str(value) == str(right)), verdict.reasons


@pytest.mark.parametrize("code", ["S0", "S2"])
def test_the_sign_of_what_underflows_is_judged_under_a_limit_too(code):
    op, inputs = OPERATORS["swigluoai_and_mul"], {"input": torch.tensor([[-(2.0**-24), 0.0]]).half()}  # half of the least number
    for value in (0.0, -0.0):
        verdict = judge(op, inputs, {"output": torch.tensor([[value]]).half()}, contract("swigluoai_and_mul", code))
        assert verdict.conforms == (str(value) == "-0.0"), verdict.reasons


def test_no_rows_lean_to_no_side():
    assert leaning(torch.empty(0).double(), torch.empty(0).double(), 2.0**-24) == 0.0


def test_terms_of_another_kind_are_refused_by_name():
    for function in (attainable.ends, attainable.judged):
        with pytest.raises(NotImplementedError, match="no attainable set for object"):
            function(object())
    with pytest.raises(NotImplementedError, match="no oracle for object"):
        oracle._rounded(object(), None)

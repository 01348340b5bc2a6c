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


def test_no_rows_lean_to_no_side():
    assert leaning(torch.empty(0).double(), torch.empty(0).double(), 2.0**-24) == 0.0


def test_terms_of_another_kind_are_refused_by_name():
    for function in (attainable.ends, attainable.judged):
        with pytest.raises(NotImplementedError, match="no attainable set for object"):
            function(object())
    with pytest.raises(NotImplementedError, match="no oracle for object"):
        oracle._rounded(object(), None)

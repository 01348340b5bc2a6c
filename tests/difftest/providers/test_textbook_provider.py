"""The textbook kernels as a candidate of the tester."""

from types import SimpleNamespace

import pytest
import torch

from difftest.providers.resolve import resolve
from difftest.verdict import judge
from numba_kernels import textbook
from reference.contracts import contract
from reference.operators import OPERATORS


def case(op, width=3):
    return SimpleNamespace(op=op, dtype="bf16", width=width, device="cpu")


def test_the_textbook_kernels_are_a_provider_of_every_operator_in_its_default_contract():
    provider = resolve("textbook")
    for op in OPERATORS:
        assert provider.check(case(op)) is None
        assert provider.claims(op) == contract(op)
        assert provider.function(op).func is getattr(textbook, op)


@pytest.mark.parametrize("op", OPERATORS)
def test_a_norm_of_rows_that_do_not_fit_shared_memory_is_refused_with_the_reason(op):
    provider, most = resolve("textbook"), textbook.widest("rmsnorm")
    assert provider.check(case(op, most)) is None
    reason = provider.check(case(op, most + 1))
    if op.endswith("_and_mul"):
        assert reason is None
    else:
        assert reason == f"a row in fp32 is kept in the shared memory of a block, which holds {most} elements"
    assert provider.check(case("layernorm")) == "numba_kernels has no layernorm"


def test_the_function_follows_the_contract_that_it_is_asked_for():
    x = torch.randn(2, 222, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    chosen = contract("silu_and_mul", "S1")
    found = resolve("textbook").function("silu_and_mul", chosen)(x)
    assert judge("silu_and_mul", {"input": x}, {"output": found}, chosen).conforms
    assert not torch.equal(found, resolve("textbook").function("silu_and_mul")(x))

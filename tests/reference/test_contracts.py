"""Contracts and operators as values: spellings, corners, and what is refused."""

import pytest

from reference.contracts import Contract, contract, corners
from reference.operators import OPERATORS
from reference.providers.claims import CLAIMS


def test_every_operator_names_its_corners():
    assert [c.code for c in corners("fused_add_rmsnorm")] == ["R0W0", "R1W0", "R0W1", "R1W1"]
    assert [c.code for c in corners("rmsnorm")] == ["W0", "W1"]
    assert [c.code for c in corners("silu_and_mul")] == ["S0", "S1"]


@pytest.mark.parametrize(
    ("spelling", "code"),
    [
        ("", "R0W0"),
        ("r1w0", "R1W0"),
        (" R1W1 ", "R1W1"),
        ("flashinfer", "R0W0"),
        ("sglang", "R0W0"),
        ("quack", "R0W0"),
        ("torch", "R1W0"),
        ("vllm", "R1W0"),
        ("vllm-0.x", "R1W1"),
        ("vllm-python", "R0W1"),
        ("hf", "R1W1"),
        ("Liger", "R1W1"),
    ],
)
def test_codes_and_libraries_are_spellings_of_a_norm_contract(spelling, code):
    assert contract("fused_add_rmsnorm", spelling).code == code


@pytest.mark.parametrize(
    ("spelling", "code"),
    [("flashinfer", "S0"), ("tensorrt-llm", "S0"), ("torch", "S1"), ("hf", "S1"), ("vllm", "S1"), ("liger", "S1")],
)
def test_libraries_are_spellings_of_a_gated_contract(spelling, code):
    assert contract("silu_and_mul", spelling).code == code


def test_the_hugging_face_gemma_module_multiplies_in_fp32_where_llama_does_not():
    assert contract("gemma_rmsnorm", "hf").code == "W0"
    assert contract("rmsnorm", "hf").code == "W1"


@pytest.mark.parametrize("spelling", ["R2W0", "S0", "W0", "nobody", "R0 W0"])
def test_an_unknown_spelling_lists_what_is_allowed(spelling):
    with pytest.raises(ValueError, match=r"R0W0, R1W0, R0W1, R1W1, flashinfer") as raised:
        contract("fused_add_rmsnorm", spelling)
    assert repr(spelling) in str(raised.value)


def test_an_unknown_operator_lists_the_known_ones():
    with pytest.raises(ValueError, match="fused_add_rmsnorm"):
        contract("layernorm")


def test_gemma_forms_carry_a_bias_of_one():
    for name, op in OPERATORS.items():
        assert contract(name).weight_bias == (1.0 if name.startswith("gemma") else 0.0) == op.weight_bias


def test_eps_is_part_of_the_contract_and_never_a_librarys_default():
    assert contract("rmsnorm", "torch").eps == 1e-6
    assert contract("rmsnorm", "torch", eps=1e-5).eps == 1e-5


@pytest.mark.parametrize("eps", [-1e-6, float("nan"), float("inf"), 1e39, 1e-46])
def test_an_eps_that_fp32_cannot_hold_is_refused(eps):
    with pytest.raises(ValueError, match="eps"):
        Contract("R0W0", eps)


def test_the_smallest_fp32_eps_and_zero_are_allowed():
    assert Contract("R0W0", 2.0**-149).eps > 0
    assert Contract("R0W0", 0.0).eps == 0


def test_contracts_are_values():
    assert contract("rmsnorm") == Contract("W0")
    assert len({contract("rmsnorm"), Contract("W0")}) == 1
    with pytest.raises(AttributeError):
        contract("rmsnorm").code = "W1"


def test_every_claim_names_operators_that_have_its_code():
    for row in CLAIMS:
        for op in row.ops:
            assert row.code in OPERATORS[op].codes, row


def test_no_library_claims_two_contracts_for_one_operator():
    pairs = [(row.library, op) for row in CLAIMS for op in row.ops]
    assert len(pairs) == len(set(pairs))

"""On rows of ties fp32 has one answer, in any order and with any admitted root; every other rounding is found there."""

import pytest
import torch

from difftest.cases import Request
from difftest.verdict import judge
from reference.arithmetic import Fp32
from reference.contracts import contract_of
from reference.operators import OPERATORS

from .biased import HalfAway, LowRoot, run

NORMS = ("fused_add_rmsnorm", "gemma_fused_add_rmsnorm", "rmsnorm", "gemma_rmsnorm")
GATED = ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "swigluoai_and_mul")
CODES = [(op, code) for op in NORMS + GATED for code in OPERATORS[op].codes]


def ties(op, code, dtype, width=4096, rows=24, seed=0):
    request = Request({op: contract_of(op, code)}, [dtype], [width], seed=seed)
    return request.template(op, dtype, width, "ties", (rows,))


def verdict_of(kind, case):
    inputs = case.inputs()
    return judge(case.operator, inputs, run(kind, case.operator, inputs, case.contract), case.contract)


class OtherOrders(Fp32):
    """Sums in sequence, a reciprocal root of two roundings, the weight first: still the same bits."""

    def mean_square(self, row):
        return row.square().cumsum(-1)[..., -1:] / row.shape[-1]

    def times_rsqrt(self, a, b):
        return a * (1.0 / torch.sqrt(b))


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize(("op", "code"), CODES)
def test_halves_away_from_zero_are_found(op, code, dtype):
    case = ties(op, code, dtype, rows=2)
    for kind in (Fp32, OtherOrders):
        assert verdict_of(kind, case).conforms
    found = verdict_of(HalfAway, case)
    if op == "swigluoai_and_mul" and code == "S0":
        return  # no gate reaches where its activation is exact: nothing of it is a tie
    assert not found.conforms
    assert found.statistics["unattainable"] > 250 or found.statistics["residual_mismatches"] > 250


@pytest.mark.parametrize(("code", "dtype"), [("W0", "bf16"), ("W0", "fp16"), ("W0", "fp32"), ("W1", "fp32")])
@pytest.mark.parametrize("op", ["rmsnorm", "gemma_rmsnorm"])
def test_a_root_that_is_always_low_is_found(op, code, dtype):
    found = verdict_of(LowRoot, ties(op, code, dtype, rows=8))
    assert not found.conforms
    assert found.statistics["unattainable"] > 1000


def test_what_is_exact_only_by_a_power_of_two_is_held_to_nothing_more_elsewhere():
    """At width 3000 the mean takes a rounded reciprocal: either neighbour of a tie is right."""
    case = ties("rmsnorm", "W0", "bf16", width=3000, rows=4)
    assert verdict_of(LowRoot, case).conforms

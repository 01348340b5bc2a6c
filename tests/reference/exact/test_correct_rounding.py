"""The oracle against rational arithmetic, element by element."""

import pytest
import torch

from reference.contracts import corners
from reference.exact.oracle import correctly_rounded

from . import by_hand
from .rows import DTYPES, GATED, NORMS, inputs_of

WIDTHS = (1, 2, 3, 7, 33)
SCALES = (1.0, 1e-3, 30.0)
ALL = 10_000


def agrees_with_rationals(op, contract, dtype, elements):
    checked, seed = 0, 0
    while checked < elements:
        width, scale = WIDTHS[seed % len(WIDTHS)], SCALES[seed % len(SCALES)]
        weight_dtype = torch.float32 if seed % 4 == 3 else None
        inputs = inputs_of(op, max(1, 66 // width), width, dtype, seed, scale, weight_dtype)
        result = correctly_rounded(op, inputs, contract)
        assert result.outputs["output"].flatten().tolist() == by_hand.norm(op, inputs, contract)
        assert result.resolved == result.undecided
        checked += result.elements
        seed += 1
    assert checked >= elements


def agrees_with_250_bits(op, contract, dtype, elements):
    generator = torch.Generator().manual_seed(1)
    gates = torch.randn(elements // 20, generator=generator)
    spread = torch.tensor([0.01, 1.0, 4.0, 12.0, 90.0])[torch.arange(len(gates)) % 5]
    gate = (gates * spread).to(dtype).repeat_interleave(20)
    up = torch.randn(len(gate), generator=generator).to(dtype)
    result = correctly_rounded(op, {"input": torch.stack((gate, up), -1)}, contract)
    assert result.outputs["output"].flatten().tolist() == by_hand.gated(op, gate.tolist(), up.tolist(), contract, dtype)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", NORMS)
def test_a_norm_is_the_rational_root_rounded_once(op, dtype):
    for contract in corners(op):
        agrees_with_rationals(op, contract, dtype, 300)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", GATED)
def test_an_activation_is_the_250_bit_value_rounded_once(op, dtype):
    for contract in corners(op):
        agrees_with_250_bits(op, contract, dtype, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", NORMS)
def test_ten_thousand_elements_of_every_norm_are_right_without_exception(op, dtype):
    for contract in corners(op):
        agrees_with_rationals(op, contract, dtype, ALL)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", GATED)
def test_ten_thousand_elements_of_every_activation_are_right_without_exception(op, dtype):
    for contract in corners(op):
        agrees_with_250_bits(op, contract, dtype, ALL)

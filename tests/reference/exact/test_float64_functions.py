"""torch's float64 exp and erfcx, and the factors made of them, against 60-digit values: a quarter of what is allowed."""

import math

import mpmath
import pytest
import torch

from reference.exact.activations import ACTIVATIONS, enclose
from reference.exact.bounds import U64
from reference.exact.terms import compensated_sum

POINTS = 1500


def gates():
    generator = torch.Generator().manual_seed(0)
    spread = torch.linspace(-39, 39, POINTS), 3 * torch.randn(POINTS, generator=generator), 2.0 ** -torch.arange(40.0)
    return torch.cat(spread).float().double()


def exact_factor(name, gate):
    x = mpmath.mpf(gate)
    if name == "silu":
        return 1 / (1 + mpmath.exp(-x))
    if name == "gelu":
        return mpmath.erfc(-x / mpmath.sqrt(2)) / 2
    return 1 / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf(44715) / 10**6 * x**3)))


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_a_factor_is_within_half_of_its_bound(name):
    _, factors, bounds = ACTIVATIONS[name].factor(gates())
    checked = 0
    with mpmath.workdps(60):
        for gate, factor, bound in zip(gates().tolist(), factors.tolist(), bounds.tolist(), strict=True):
            exact = exact_factor(name, gate)
            if gate != 0 and exact > 1e-290:
                assert abs(mpmath.mpf(factor) / exact - 1) < bound / 2, gate
                checked += 1
    assert checked > 2000


def test_exp_and_erfcx_are_within_the_measured_errors():
    points = gates().abs()
    with mpmath.workdps(60):
        for point, decay, scaled in zip(
            points.tolist(), torch.exp(-points).tolist(), torch.special.erfcx(points).tolist(), strict=True
        ):
            x = mpmath.mpf(point)
            assert abs(mpmath.mpf(decay) * mpmath.exp(x) - 1) < 2 * U64
            assert abs(mpmath.mpf(scaled) / (mpmath.exp(x * x) * mpmath.erfc(x)) - 1) < 6 * U64


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_an_enclosure_holds_the_true_value_but_for_a_gap_without_float64_numbers(name):
    near = gates()[gates().abs() < 12]
    far = torch.tensor([15.0, 20.0, -20.0, -39.0, 1e-20, -1e-20]).double()
    for gate, precision in ((near, 400), (far, 2000)):  # enough to tell the tanh form's sigmoid from 1 at 20
        argument, factor, error = ACTIVATIONS[name].factor(gate)
        lowest, highest = enclose(argument, factor, error, 1.75 * gate)
        assert (lowest <= highest).all()
        with mpmath.workprec(precision):
            for g, low, high in zip(gate.tolist(), lowest.tolist(), highest.tolist(), strict=True):
                value = abs(mpmath.mpf(g) * 1.75 * exact_factor(name, g))
                assert math.nextafter(low, -1) < value < math.nextafter(high, math.inf), g


def test_a_compensated_sum_is_off_by_one_rounding_at_most():
    generator = torch.Generator().manual_seed(0)
    terms = (torch.randn(8, 4097, generator=generator) * torch.logspace(-8, 8, 4097)).double().square()
    for row, total in zip(terms, compensated_sum(terms)[:, 0].tolist(), strict=True):
        exact = sum(map(int, (row * 2.0**200).tolist()))
        assert abs(int(total * 2.0**200) - exact) <= exact * U64

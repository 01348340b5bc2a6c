"""Families of weights, by name, each there to bring out one kind of fault; they stand beside the regimes of the rows.

As those, a function of the case's seed alone. What is said of a value is said of the effective weight, the bias included;
of the stored one where it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from difftest.cases.draw import Draw
from reference.formats import Format
from reference.operators import Operator

USUAL = "usual"


@dataclass(frozen=True, slots=True)
class Weights:
    """A family of weights. `why` says which fault it is there for; `values` gives (width,) float32 for a storage format."""

    name: str
    why: str
    values: Callable[[Draw, Format], torch.Tensor]


def _usual(d: Draw, form: Format) -> torch.Tensor:
    return d.weight()


def _around_zero(d: Draw, form: Format) -> torch.Tensor:
    """Both signs, a mean near 0."""
    return d.weight() - 1.0


def _zeros(d: Draw, form: Format) -> torch.Tensor:
    """By column, at random: an effective 0, a stored +0, a stored -0, the usual."""
    usual, turn = d.weight(), d.one_of(4)
    known = torch.tensor([-d.op.weight_bias, 0.0, -0.0])
    return torch.where(turn < 3, known[turn.clamp_max(2)], usual)


def _negative(d: Draw, form: Format) -> torch.Tensor:
    return -(d.weight() + d.op.weight_bias).abs() - d.op.weight_bias


def _large(d: Draw, form: Format) -> torch.Tensor:
    """4 to 1e4 in both signs; a quarter of an fp32 weight is 1e5 to 1e6, beyond fp16's range."""
    exponent = torch.rand(d.width, generator=d.generator)
    value = 4.0 * 2500.0**exponent
    if form.name == "fp32":
        value = torch.where(d.one_of(4) == 0, 10.0 ** (5.0 + exponent), value)
    return value * (2.0 * d.one_of(2) - 1.0)


def _subnormal(d: Draw, form: Format) -> torch.Tensor:
    """As stored: small multiples of the smallest subnormal of the weight's format, a third a few times the smallest normal."""
    info = torch.finfo(form.torch)
    tiny = torch.randint(-40, 41, (d.width,), generator=d.generator).double() * (info.smallest_normal * info.eps)
    near = (1.0 + 3.0 * torch.rand(d.width, generator=d.generator)).double() * info.smallest_normal
    return torch.where(d.one_of(3) == 0, near, tiny).float()


def _outlier(d: Draw, form: Format) -> torch.Tensor:
    """The usual but for one column, which is a hundred times as large."""
    weight = d.weight()
    column = int(torch.randint(0, d.width, (1,), generator=d.generator))
    weight[column] = 100.0 * (weight[column] + d.op.weight_bias) - d.op.weight_bias
    return weight


def _inf_nan(d: Draw, form: Format) -> torch.Tensor:
    """The usual but for Inf, NaN and -Inf in that order at random columns, as many as fit into half of a row; at least one."""
    weight = d.weight()
    columns = torch.randperm(d.width, generator=d.generator)[: min(3, max(1, d.width // 2))]
    weight[columns] = torch.tensor([float("inf"), float("nan"), float("-inf")])[: len(columns)]
    return weight


# From plain to odd.
WEIGHTS: Mapping[str, Weights] = MappingProxyType(
    {
        w.name: w
        for w in (
            Weights(USUAL, "about 1, or what the regime of the rows comes with", _usual),
            Weights("around_zero", "both signs, mean near 0: a formula chosen by the weight's mean", _around_zero),
            Weights("negative", "a sign that is lost", _negative),
            Weights("large", "4 to 1e4, fp32 ones to 1e6: a clamp, a weight that goes through fp16", _large),
            Weights("outlier", "one weight a hundred times as large: a scale taken from the largest", _outlier),
            Weights("zeros", "zeros of both signs, as stored and after the bias: a weight that is divided by", _zeros),
            Weights("subnormal", "a weight that flushes to zero where it may not", _subnormal),
            Weights("inf_nan", "Inf and NaN must come through in their column", _inf_nan),
        )
    }
)


def names(op: Operator) -> tuple[str, ...]:
    """The names of the families that mean something for an operator: the usual one alone where it has no weight."""
    return tuple(WEIGHTS) if op.vectors else (USUAL,)

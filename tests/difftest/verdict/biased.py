"""Arithmetics that round otherwise than to nearest even, one operation each; `compute` runs any operator with them."""

import torch

from reference.arithmetic import Fp32, compute
from reference.rounding import ulp_of


def toward_zero(value, dtype):
    """fp32 cut to the storage dtype."""
    ulp = ulp_of(value.double(), dtype)
    return torch.where(value.isfinite(), torch.trunc(value.double() / ulp) * ulp, value.double()).to(dtype)


def half_away(value, dtype):
    """fp32 to the nearest value of the storage dtype, halves away from zero."""
    wide, ulp = value.double(), ulp_of(value.double(), dtype)
    rounded = torch.copysign(torch.floor(wide.abs() / ulp + 0.5) * ulp, wide)
    return torch.where(value.isfinite(), rounded, wide).to(dtype)


def stochastically(value, dtype, share, generator):
    """To nearest even, but for that share of the elements: those go up with the probability of their fraction."""
    wide, ulp = value.double(), ulp_of(value.double(), dtype)
    drawn = torch.rand(value.shape, generator=generator, dtype=torch.float64)
    up_or_down = (torch.floor(wide / ulp + drawn) * ulp).to(dtype)
    return torch.where(torch.rand(value.shape, generator=generator) < share, up_or_down, value.to(dtype))


def sum_toward_zero(values, lanes):
    """Over the last axis: each lane adds its share in sequence, then a tree; every addition cut to fp32."""
    pad = -values.shape[-1] % lanes
    steps = torch.nn.functional.pad(values, (0, pad)).reshape(*values.shape[:-1], -1, lanes)
    total = torch.zeros_like(steps[..., 0, :])
    for step in range(steps.shape[-2]):
        total = cut(total.double() + steps[..., step, :].double())
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = cut(total[..., :half].double() + total[..., half:].double())
    return total


def cut(positive):
    """float64 toward zero to fp32."""
    nearest = positive.float()
    return torch.where(nearest.double() > positive, torch.nextafter(nearest, torch.zeros_like(nearest)), nearest)


class SumTowardZero(Fp32):
    """fp32 sums rounded toward zero, in the order of the textbook kernel: 32 lanes, then a tree."""

    lanes = 32

    def mean_square(self, row):
        return sum_toward_zero(row.square(), self.lanes) / row.shape[-1]


class LowRoot(Fp32):
    """A root that is always an fp32 ulp low."""

    def times_rsqrt(self, a, b):
        root = torch.rsqrt(b)
        return a * torch.nextafter(root, torch.zeros_like(root))


class HalfAway(Fp32):
    """Halves away from zero wherever a value is stored."""

    def store(self, value, like=None):
        return half_away(value, self.dtypes[like or self.rows])


class InnerTruncated(Fp32):
    """Every stored value that is used again is cut: W1's inner value, S1's activation; the results are right."""

    def load(self, stored):
        return super().load(stored) if isinstance(stored, torch.Tensor) else super().load(toward_zero(*stored))

    def store(self, value, like=None):
        return (value, self.dtypes[like or self.rows])


class StochasticResidual(Fp32):
    """One element in a thousand of what is stored first, the new residual, is rounded stochastically."""

    def store(self, value, like=None):
        dtype = self.dtypes[like or self.rows]
        if self.first:
            self.first = False
            return stochastically(value, dtype, 1e-3, torch.Generator().manual_seed(0))
        return super().store(value, like)

    first = True


def run(kind, op, inputs, contract):
    """The operator's outputs by name in that arithmetic."""
    arithmetic = kind({name: inputs[name].dtype for name in op.inputs}, op.rows[0])
    outputs = compute(op, inputs, contract, arithmetic)
    return {name: each[0].to(each[1]) if isinstance(each, tuple) else each for name, each in outputs.items()}

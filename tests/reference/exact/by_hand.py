"""Correct rounding by comparison with midpoints, in rational arithmetic: what the oracle's tests hold it against.

Slow, plain, and independent of `reference`'s oracle: a starting value is moved up or down one storage step at a time
until it lies between its own midpoints. Norms compare squares of rationals; activations compare 250-bit numbers.
"""

import struct
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import torch

from reference.arithmetic import biased_weight
from reference.operators import operator

BITS = {torch.float16: (torch.int16, 0x7C00), torch.bfloat16: (torch.int16, 0x7F80), torch.float32: (torch.int32, 0x7F800000)}
OVERFLOW = {torch.float16: 2.0**16, torch.bfloat16: 2.0**128, torch.float32: 2.0**128}  # takes the place of infinity


def magnitude_of(pattern, dtype):
    """The storage value with that bit pattern (sign clear), an infinity being the power of two where it would be."""
    if pattern == BITS[dtype][1]:
        return OVERFLOW[dtype]
    if dtype is torch.float16:
        return float(np.uint16(pattern).view(np.float16))
    return struct.unpack("<f", struct.pack("<I", pattern << 16 if dtype is torch.bfloat16 else pattern))[0]


def settle(pattern, against, dtype):
    """The pattern of the correctly rounded magnitude; `against(midpoint)` is the sign of magnitude - midpoint."""
    while True:
        here = magnitude_of(pattern, dtype)
        if pattern < BITS[dtype][1]:
            above = against((here + magnitude_of(pattern + 1, dtype)) / 2)  # exact in float64
            if above > 0 or (above == 0 and pattern % 2):
                pattern += 1
                continue
        if pattern > 0:
            below = against((here + magnitude_of(pattern - 1, dtype)) / 2)
            if below < 0 or (below == 0 and pattern % 2):
                pattern -= 1
                continue
        return pattern


def patterns(magnitudes, dtype):
    """Starting patterns: float64 magnitudes rounded somehow."""
    return magnitudes.float().to(dtype).view(BITS[dtype][0]).tolist()


def sign(number):
    return (number > 0) - (number < 0)


def norm(op, inputs, contract):
    """Every output element of a norm, as a flat list of signed numbers (infinity for overflow)."""
    op, rows = operator(op), inputs["input"]
    dtype, width = rows.dtype, rows.shape[-1]
    hidden = rows.float()
    if op.mutated:
        hidden = hidden + inputs["residual"].float()
        if contract.rounds_sum:
            hidden = hidden.to(dtype).float()
    weights = biased_weight(inputs["weight"], contract).tolist()
    eps = Fraction(float(np.float32(contract.eps)))
    inner = contract.rounds_norm and dtype is not torch.float32
    results = []
    for row in hidden.reshape(-1, width).double():
        values = row.tolist()
        shifted = sum(Fraction(v) ** 2 for v in values) / width + eps
        scale = row.abs() / float(shifted) ** 0.5
        starts = patterns(scale if inner else scale * torch.tensor(weights).double().abs(), dtype)
        for value, weight, start in zip(values, weights, starts, strict=True):
            square = Fraction(value) ** 2 * (1 if inner else Fraction(weight) ** 2)
            pattern = settle(start, lambda m, s=square, t=shifted: sign(s - Fraction(m) ** 2 * t), dtype)
            if inner:
                product = abs(Fraction(magnitude_of(pattern, dtype)) * Fraction(weight))
                start = patterns(torch.tensor([float(product)], dtype=torch.float64), dtype)[0]
                pattern = settle(start, lambda m, p=product: sign(p - Fraction(m)), dtype)
            magnitude = magnitude_of(pattern, dtype)
            results.append((magnitude if magnitude < OVERFLOW[dtype] else np.inf) * np.sign(value) * np.sign(weight))
    return results


@cache
def activated(name, gate):
    """|act(gate)| in 250 bits."""
    with mpmath.workprec(250):
        x = mpmath.mpf(gate)
        if name == "silu":
            return abs(x / (1 + mpmath.exp(-x)))
        if name == "gelu":
            return abs(x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2)
        u = mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf(44715) / 10**6 * x**3)
        return abs(x / (1 + mpmath.exp(-2 * u)))


def gated(op, gates, ups, contract, dtype):
    """act(gate) * up for lists of storage values, as a list of signed numbers."""
    name, results = operator(op).activation, []
    inner = contract.rounds_activation and dtype is not torch.float32
    with mpmath.workprec(250):
        for gate, up in zip(gates, ups, strict=True):
            value = activated(name, gate) * (1 if inner else abs(up))
            start = patterns(torch.tensor([float(value)], dtype=torch.float64), dtype)[0]
            # act(gate) < gate: where 250 bits cannot tell gate * up from its product with sigmoid, the latter is below.
            pattern = settle(start, lambda m, v=value, g=gate: sign(v - m) or -int(g > 0 and m > 0), dtype)
            if inner:
                product = magnitude_of(pattern, dtype) * abs(up)  # exact in float64
                start = patterns(torch.tensor([product], dtype=torch.float64), dtype)[0]
                pattern = settle(start, lambda m, p=product: sign(p - m), dtype)
            magnitude = magnitude_of(pattern, dtype)
            results.append((magnitude if magnitude < OVERFLOW[dtype] else np.inf) * np.sign(gate) * np.sign(up))
    return results

"""All that is proved of the activations, one entry each: act(gate) = gate * factor, with the factor in [0, 1].

The factor in float64 and its error, the fp32 errors of a form that does not cancel and of those that do, and the factor
to any precision. Relative errors, but for the absolute ones named so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import mpmath
import torch

from reference.exact.bounds import FP32_LAST, NEGLIGIBLE, U32, U64

# torch's float64 exp and erfcx were off by at most 1.0 and 4.1 U64, and the factors made of them by 2.7 (silu) and 7.8
# (gelu), over 12 000 points against 60-digit values, tails included (tests/reference/exact/test_float64_functions.py).
# Libraries prove no bounds for them, so this allows four times the worst; CUDA documents 2 U64 for exp.
FACTOR_F64 = 32 * U64
# The tanh form's argument t takes six float64 roundings, and sigmoid multiplies a relative error of t by
# |t| (1 - sigmoid(t)).
TANH_ARGUMENT_F64 = 8 * U64

# exp(-x) for x below this leaves fp32, or its fast reciprocal does: the quotient may be zero (-126 ln 2 = -87.34).
EXP_LIMIT = -87.3

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Activation:
    """One activation. The gate is float64 from fp32; `parameters` are the numbers that its formula takes after the gate.

    `factor(gate, *parameters)`: (argument, factor, bound on the factor's error), float64; the argument is what the
    sigmoid is taken of, or the gate. `fp32_error(gate, factor, argument)`: bound on act(gate) in fp32, at most 1, in a
    form that does not cancel. `cancelling_error(factor, argument)`: absolute bound on the factor in fp32 in the forms in use
    that do cancel at negative gates, down to where they give 0 (`SATURATED`); None if there are none.
    `to_any_precision(gate, *parameters)`: the factor, in mpmath's precision of the moment; no tie but at 0, since exp, erf
    and tanh are transcendental.
    """

    factor: Callable[..., Three]
    fp32_error: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    cancelling_error: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None
    to_any_precision: Callable[..., mpmath.mpf]


# --- sigmoids: silu, and gelu's tanh form -----------------------------------------------------------------------------


def sigmoid_factor(argument: torch.Tensor, argument_error: float = 0.0) -> Three:
    """sigmoid(argument) from exp(-|argument|), which does not cancel; the argument is off by `argument_error`."""
    decay = torch.exp(-argument.abs())
    factor = torch.where(argument < 0, decay, 1.0) / (1.0 + decay)
    bound = torch.full_like(argument, FACTOR_F64)
    if argument_error:
        growth = argument.abs() * torch.where(argument < 0, 1.0, decay)
        bound = bound + argument_error * growth.nan_to_num(nan=0.0, posinf=1e300)
    return argument, factor, bound


def sigmoid_fp32_error(
    argument_roundings: float, gate: torch.Tensor, factor: torch.Tensor, argument: torch.Tensor
) -> torch.Tensor:
    """fp32 bound on gate * sigmoid(argument), where the argument takes that many fp32 roundings.

    Library errors are CUDA's documented maxima, an ulp counted as 2 U32: `__expf` is off by 2 + 1.173 |x| ulp (argument
    scaling and ex2.approx) and weighs 1 - factor, as the argument's roundings do; 1 + e, a fast division (2 ulp) and
    the product with the gate take 6 U32; 2 spare.
    """
    growth = ((2.35 + argument_roundings) * argument.abs() + 4.0) * (1.0 - factor)
    return torch.clamp((growth.nan_to_num(nan=0.0, posinf=math.inf) + 8.0) * U32, max=1.0)


def sigmoid_to_any_precision(argument: mpmath.mpf) -> mpmath.mpf:
    """1 / (1 + exp(-argument))."""
    return 1 / (1 + mpmath.exp(-argument))


def _gelu_tanh_factor(gate: torch.Tensor) -> Three:
    argument = gate * (2.0 * math.sqrt(2.0 / math.pi)) * (1.0 + 0.044715 * gate.square())
    return sigmoid_factor(argument, TANH_ARGUMENT_F64)


def _gelu_tanh_to_any_precision(gate: mpmath.mpf) -> mpmath.mpf:
    cube = mpmath.mpf(44715) / 1000000 * gate**3
    return sigmoid_to_any_precision(2 * mpmath.sqrt(2 / mpmath.pi) * (gate + cube))


def _swish_factor(gate: torch.Tensor, alpha: float) -> Three:
    return sigmoid_factor(alpha * gate)  # 24-bit significands: exact in float64


def _swish_to_any_precision(gate: mpmath.mpf, alpha: float) -> mpmath.mpf:
    return sigmoid_to_any_precision(mpmath.mpf(alpha) * gate)


# --- gelu -------------------------------------------------------------------------------------------------------------


def _gelu_factor(gate: torch.Tensor) -> Three:
    """Phi from erfcx, whose companion exp(-gate^2 / 2) has an exact argument: the square of an fp32 number fits float64.

    1 - Phi is taken only where Phi <= 1/2.
    """
    tail = 0.5 * torch.special.erfcx(gate.abs() * math.sqrt(0.5)) * torch.exp(-0.5 * gate.square())
    return gate, torch.where(gate < 0, tail, 1.0 - tail), torch.full_like(gate, FACTOR_F64)


def _gelu_fp32_error(gate: torch.Tensor, factor: torch.Tensor, argument: torch.Tensor) -> torch.Tensor:
    """The argument's 2 U32 grow by x * phi(x) / Phi(x) <= x^2 + 1 for x < 0 (Mills), by less than 1 above; erfc 4 ulp,
    three products, 3 spare.
    """
    return torch.clamp(14 * U32 + 2 * U32 * torch.where(gate < 0, gate.square() + 1, 1.0), max=1.0)


def _gelu_to_any_precision(gate: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(-gate / mpmath.sqrt(2)) / 2


# --- forms that cancel ------------------------------------------------------------------------------------------------

# gate * (1 + erf(z)) / 2 and gate * (1 + tanh(v)) / 2 cancel at negative gates, and torch, FlashInfer, vLLM and quack ship
# them. In fp32 1 + erf is exact from erf = -1/2 down (Sterbenz), and a multiple of U32: what is wrong with it is what is wrong
# with erf: at most 2 ulp of the correctly rounded number below 1, that is 2.5 U32 (CUDA documents 2 for erff and tanhf), and z's
# own roundings. Where erf rounds to -1 the form gives exactly 0. A correctly rounded erf does at a factor of 2^-26; measured,
# torch's and Numba's erf and tanh and two tanh made of exp do at 2^-25 to 2^-26.1 (tests/reference/exact/test_activations.py).
# From half of 2^-26 down none is anything but -1.
SATURATED = 2.0**-27


# torch's F.gelu on a CPU is one polynomial, no erf: measured over 3 000 000 gates, its factor is off by at most 5.4 U32 from -4
# up, 1.5 from -5 to -4 and 0.4 below, where it ends at -5.5.
CPU_GELU = 6.0 * U32


def erf_cancellation(factor: torch.Tensor, argument: torch.Tensor) -> torch.Tensor:
    """Of (1 + erf(z)) / 2, z = gate / sqrt(2): half of 2.5 U32 and of 2 U32 |z| erf'(z), which is 2 U32 |gate| phi(gate)."""
    density = torch.exp(-0.5 * argument.square()) * (argument.abs() / math.sqrt(2 * math.pi))
    return torch.where(argument > -4.0, CPU_GELU, U32 * (1.25 + 2.0 * density))


def tanh_cancellation(argument_roundings: float, factor: torch.Tensor, argument: torch.Tensor) -> torch.Tensor:
    """Of (1 + tanh(v)) / 2 with v = argument / 2, halved exactly: half of 2.5 U32, and v's roundings times tanh'(v) |v|."""
    growth = argument_roundings * argument.abs() * factor * (1.0 - factor)
    return U32 * (1.25 + growth.nan_to_num(nan=0.0))


# --- the table, and what all share ------------------------------------------------------------------------------------

SIGMOID = "sigmoid"  # the factor alone, for contracts that round it: gate is the sigmoid's argument

ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "silu": Activation(
            sigmoid_factor, partial(sigmoid_fp32_error, 0.0), partial(tanh_cancellation, 0.0), sigmoid_to_any_precision
        ),
        # The argument takes 7 roundings, constants included.
        "gelu_tanh": Activation(
            _gelu_tanh_factor,
            partial(sigmoid_fp32_error, 7.0),
            partial(tanh_cancellation, 7.0),
            _gelu_tanh_to_any_precision,
        ),
        "swish": Activation(
            _swish_factor, partial(sigmoid_fp32_error, 1.0), partial(tanh_cancellation, 1.0), _swish_to_any_precision
        ),
        "gelu": Activation(_gelu_factor, _gelu_fp32_error, erf_cancellation, _gelu_to_any_precision),
        SIGMOID: Activation(sigmoid_factor, partial(sigmoid_fp32_error, 0.0), None, sigmoid_to_any_precision),
    }
)


def underflow_error(gate: torch.Tensor) -> torch.Tensor:
    """Absolute fp32 bound on act(gate), beside the relative one: exp 2 ulp off among subnormals, division, product."""
    return (4 * gate.abs() + 1) * FP32_LAST


def enclose(
    argument: torch.Tensor, factor: torch.Tensor, error: torch.Tensor, product: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Magnitudes (lowest, highest), float64, for |factor * product|, all finite: no tie beyond them matters.

    `product`: exact numbers that multiply the factor. The factor is above 1/2 for a positive argument, below for a
    negative one, 1/2 at zero, and never reaches 0, 1/2 or 1 elsewhere. |product| and its half, both float64 numbers,
    therefore bound the value strictly. They matter: where the factor is within 2^-53 of 1 or 1/2 the value sits just
    beside a number that is often a tie. Such an end is moved to the next float64 number inwards. The value may lie in
    the gap of one float64 step, but no tie can: ties are float64 numbers. So the value rounds as some number in
    [lowest, highest] does.
    """
    product = product.abs()
    half = 0.5 * product
    infinity = torch.full_like(product, math.inf)
    above = torch.where(argument > 0, torch.nextafter(half, infinity), 0.0)
    below = torch.nextafter(torch.where(argument > 0, product, half), -infinity)
    lowest = torch.maximum(product * (factor * (1.0 - error)) - NEGLIGIBLE, above)
    highest = torch.minimum(product * (factor * (1.0 + error)) + NEGLIGIBLE, below)
    exact = (product == 0) | (argument == 0)
    return torch.where(exact, half, lowest), torch.where(exact, half, highest)

"""Activations with another formula, in a part of the curve or everywhere; gate and up taken from the wrong place."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from difftest.mutants import plain
from difftest.mutants.entry import mutant


def tanh_form(gate, cubic):
    """gate * sigmoid(2u) with another coefficient of the cubic term."""
    return gate * torch.sigmoid(1.5957691216057308 * gate * (1.0 + cubic * gate * gate))


@mutant("silu_and_mul", "kind of vllm, mul_and_silu")
def gate_and_up_exchanged(input):
    """The up half is taken for the gate."""
    up, gate = input.chunk(2, dim=-1)
    return plain.silu_and_mul(torch.cat((gate, up), dim=-1))


@mutant("swigluoai_and_mul", "kind of gpt-oss, interleaved weights")
def halves_for_pairs(input, alpha, limit):
    """Gate and up are taken for halves, where they alternate."""
    gate, up = input.chunk(2, dim=-1)
    return plain.swigluoai_and_mul(torch.stack((gate, up), dim=-1).flatten(-2), alpha, limit)


@mutant("swigluoai_and_mul", "kind of N06")
def alpha_hard_coded(input, alpha, limit):
    """gpt-oss's alpha, 1.702, in place of the one that was passed."""
    return plain.swigluoai_and_mul(input, 1.702, limit)


@mutant("swigluoai_and_mul", "kind of N06")
def limit_hard_coded(input, alpha, limit):
    """gpt-oss's limit, 7, in place of the one that was passed."""
    return plain.swigluoai_and_mul(input, alpha, 7.0)


@mutant("swigluoai_and_mul", "kind of N16")
def gate_clamped_from_below_too(input, alpha, limit):
    """The gate is clamped to [-limit, limit], not from above alone."""
    gate, up = plain.pairs(input, limit)
    gate = gate.clamp(min=-limit)
    return (gate * torch.sigmoid(alpha * gate) * (up + 1)).to(input.dtype)


@mutant("swigluoai_and_mul", "kind of N16")
def up_not_clamped(input, alpha, limit):
    """up is not clamped."""
    gate, _ = plain.pairs(input, limit)
    return (gate * torch.sigmoid(alpha * gate) * (input[..., 1::2].float() + 1)).to(input.dtype)


@mutant("swigluoai_and_mul", "kind of gpt-oss")
def up_without_its_one(input, alpha, limit):
    """up is not raised by 1."""
    gate, up = plain.pairs(input, limit)
    return (gate * torch.sigmoid(alpha * gate) * up).to(input.dtype)


@mutant("gelu_and_mul", "tract#2582")
def gelu_tail_kept(input):
    """Below -6 gelu is gate * 2^-24, where it is far nearer to zero."""
    gate, up = plain.halves(input)
    return (torch.where(gate < -6, gate * 2.0**-24, plain.gelu(gate)) * up).to(input.dtype)


@mutant("gelu_tanh_and_mul", "Liger#959, tt-metal#56604")
def gelu_tanh_tail_of_silu(input):
    """Below -20 gelu_tanh is silu's tail, gate * exp(gate)."""
    gate, up = plain.halves(input)
    return (torch.where(gate < -20, gate * gate.exp(), plain.gelu_tanh(gate)) * up).to(input.dtype)


@mutant("gelu_tanh_and_mul", "kind of tract#2582")
def gelu_tanh_0447(input):
    """0.0447 in place of 0.044715."""
    gate, up = plain.halves(input)
    return (tanh_form(gate, 0.0447) * up).to(input.dtype)


@mutant("gelu_and_mul", "kind of tt-metal#56604")
def tanh_form_for_gelu(input):
    """The tanh form where the exact one was asked for."""
    gate, up = plain.halves(input)
    return (plain.gelu_tanh(gate) * up).to(input.dtype)


@mutant("gelu_tanh_and_mul", "kind of tt-metal#56604")
def exact_form_for_tanh(input):
    """The exact gelu where the tanh form was asked for."""
    gate, up = plain.halves(input)
    return (plain.gelu(gate) * up).to(input.dtype)


@mutant("gelu_and_mul", "kind of vllm, gelu_quick")
def quick_gelu(input):
    """gate * sigmoid(1.702 gate)."""
    gate, up = plain.halves(input)
    return (gate * torch.sigmoid(1.702 * gate) * up).to(input.dtype)


@mutant("silu_and_mul", "kind of tract#2582")
def silu_is_the_gate_above_eight(input):
    """Above 8 silu is the gate itself, 3e-4 too large."""
    gate, up = plain.halves(input)
    return (torch.where(gate > 8, gate, gate * torch.sigmoid(gate)) * up).to(input.dtype)


@mutant("silu_and_mul", "kind of tract#2582")
def silu_is_zero_below_minus_ten(input):
    """Below -10 silu is 0, where it is -5e-4 and smaller."""
    gate, up = plain.halves(input)
    return (torch.where(gate < -10, 0.0, gate * torch.sigmoid(gate)) * up).to(input.dtype)


@mutant("gelu_tanh_and_mul", "PTX ISA, tanh.approx")
def tanh_to_eleven_bits(input):
    """tanh has 11 good bits, as tanh.approx has."""
    gate, up = plain.halves(input)
    t = torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))
    mantissa, exponent = torch.frexp(t)
    coarse = torch.ldexp((mantissa * 2048).round() / 2048, exponent)
    return (0.5 * gate * (1 + coarse) * up).to(input.dtype)


@mutant("silu_and_mul", "kind of tt-metal#56604")
def sigmoid_by_a_table(input):
    """The sigmoid comes from a table of 4096 steps between -8 and 8."""
    gate, up = plain.halves(input)
    sigmoid = torch.sigmoid((gate * 256).round() / 256)
    return (gate * sigmoid * up).to(input.dtype)


@mutant("gelu_and_mul", "torch 2.13's F.gelu on a CPU")
def gelu_by_torch(input):
    """F.gelu(gate) * up in fp32: in a vector torch's gelu of +Inf is NaN, and of 2.4e38 Inf, where it is the gate itself."""
    gate, up = plain.halves(input)
    return (F.gelu(gate) * up).to(input.dtype)


@mutant("gelu_and_mul", "torch 2.13's F.gelu on a CPU", contract="S1")
def eager_gelu(input):
    """F.gelu and a product, each stored: in a vector torch's gelu of +Inf is NaN, and of 2.4e38 Inf."""
    gate, up = input.chunk(2, dim=-1)
    return F.gelu(gate) * up

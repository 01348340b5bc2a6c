"""Forms of the activations."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from difftest.mutants.entry import honest
from difftest.mutants.plain import halves, pairs

SCALE = math.sqrt(2 / math.pi)


@honest("silu_and_mul")
def silu_by_sigmoid(input):
    """gate * sigmoid(gate) * up."""
    gate, up = halves(input)
    return (gate * torch.sigmoid(gate) * up).to(input.dtype)


@honest("silu_and_mul")
def silu_by_division(input):
    """gate / (1 + exp(-gate)) * up, as FlashInfer and vLLM have it."""
    gate, up = halves(input)
    return (gate / (1.0 + torch.exp(-gate)) * up).to(input.dtype)


@honest("silu_and_mul")
def silu_by_tanh(input):
    """gate / 2 * (1 + tanh(gate / 2)) * up, as CuTe kernels have it."""
    gate, up = halves(input)
    half = 0.5 * gate
    return ((half + half * torch.tanh(half)) * up).to(input.dtype)


@honest("silu_and_mul")
def silu_products_first(input):
    """(gate * up) * sigmoid(gate)."""
    gate, up = halves(input)
    return (gate * up * torch.sigmoid(gate)).to(input.dtype)


@honest("silu_and_mul")
def silu_by_torch(input):
    """F.silu(gate) * up in fp32."""
    gate, up = halves(input)
    return (F.silu(gate) * up).to(input.dtype)


@honest("silu_and_mul")
def silu_by_exp2(input):
    """gate / (1 + 2^(-gate log2 e)) * up."""
    gate, up = halves(input)
    return (gate / (1.0 + torch.exp2(gate * -math.log2(math.e))) * up).to(input.dtype)


@honest("silu_and_mul")
def silu_by_the_sign(input):
    """exp of minus the magnitude: gate / (1 + e) above zero, gate * e / (1 + e) below."""
    gate, up = halves(input)
    e = torch.exp(-gate.abs())
    return (torch.where(gate >= 0, gate / (1.0 + e), gate * e / (1.0 + e)) * up).to(input.dtype)


@honest("silu_and_mul")
def silu_in_fp64(input):
    """fp64, rounded once."""
    gate, up = (part.double() for part in input.chunk(2, dim=-1))
    return (gate * torch.sigmoid(gate) * up).float().to(input.dtype)


@honest("gelu_and_mul")
def gelu_by_erfc(input):
    """gate / 2 * erfc(-gate / sqrt 2) * up."""
    gate, up = halves(input)
    return (0.5 * gate * torch.erfc(-gate * math.sqrt(0.5)) * up).to(input.dtype)


@honest("gelu_and_mul")
def gelu_by_erf(input):
    """gate / 2 * (1 + erf(gate / sqrt 2)) * up, as FlashInfer and vLLM have it."""
    gate, up = halves(input)
    return (0.5 * gate * (1.0 + torch.erf(gate * math.sqrt(0.5))) * up).to(input.dtype)


@honest("gelu_and_mul")
def gelu_in_fp64(input):
    """fp64, rounded once."""
    gate, up = (part.double() for part in input.chunk(2, dim=-1))
    return (0.5 * gate * torch.special.erfc(-gate * math.sqrt(0.5)) * up).float().to(input.dtype)


@honest("gelu_tanh_and_mul")
def gelu_tanh_by_tanh(input):
    """gate / 2 * (1 + tanh(u)) * up, as FlashInfer and vLLM have it."""
    gate, up = halves(input)
    u = SCALE * (gate + 0.044715 * gate * gate * gate)
    return (0.5 * gate * (1.0 + torch.tanh(u)) * up).to(input.dtype)


@honest("gelu_tanh_and_mul")
def gelu_tanh_by_sigmoid(input):
    """gate * sigmoid(2u) * up."""
    gate, up = halves(input)
    u = SCALE * gate * (1.0 + 0.044715 * gate * gate)
    return (gate * torch.sigmoid(2.0 * u) * up).to(input.dtype)


@honest("gelu_tanh_and_mul")
def gelu_tanh_by_division(input):
    """gate / (1 + exp(-2u)) * up."""
    gate, up = halves(input)
    u = SCALE * (gate + 0.044715 * (gate * gate * gate))
    return (gate / (1.0 + torch.exp(-2.0 * u)) * up).to(input.dtype)


@honest("gelu_tanh_and_mul")
def gelu_tanh_by_torch(input):
    """F.gelu(gate, approximate="tanh") * up in fp32."""
    gate, up = halves(input)
    return (F.gelu(gate, approximate="tanh") * up).to(input.dtype)


@honest("swigluoai_and_mul")
def swigluoai_by_division(input, alpha, limit):
    """gate / (1 + exp(-alpha gate)) * (up + 1)."""
    gate, up = pairs(input, limit)
    return (gate / (1.0 + torch.exp(-alpha * gate)) * (up + 1.0)).to(input.dtype)


@honest("swigluoai_and_mul")
def swigluoai_up_first(input, alpha, limit):
    """(up + 1) * gate * sigmoid(alpha gate)."""
    gate, up = pairs(input, limit)
    return ((up + 1.0) * (gate * torch.sigmoid(alpha * gate))).to(input.dtype)

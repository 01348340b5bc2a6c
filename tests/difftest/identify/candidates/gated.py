"""Gated activations as people write them, and some that follow no contract."""

import math

import torch
import torch.nn.functional as F

from reference.providers import Refused


def tanh(value):
    """As far off as tanh.approx may be: cut to twelve significant bits, a relative error of up to 2^-11."""
    exact = torch.tanh(value.double())
    mantissa, exponent = torch.frexp(exact)
    return torch.ldexp(torch.floor(mantissa * 2**12) / 2**12, exponent).float()


def halves(input):
    return input.float().chunk(2, -1)


def silu_and_mul_s0(input):
    gate, up = halves(input)
    return (F.silu(gate) * up).to(input.dtype)


def silu_and_mul_s1(input):
    gate, up = input.chunk(2, -1)
    return F.silu(gate) * up


def silu_and_mul_by_hardware_tanh(input):
    gate, up = halves(input)
    return (gate * (0.5 + 0.5 * tanh(0.5 * gate)) * up).to(input.dtype)


def gelu_and_mul_s0(input):
    gate, up = halves(input)
    return (0.5 * gate * (1.0 + torch.erf(gate * math.sqrt(0.5))) * up).to(input.dtype)


def gelu_and_mul_s1(input):
    gate, up = input.chunk(2, -1)
    return F.gelu(gate) * up


def gelu_tanh(gate, tanh=torch.tanh):
    return 0.5 * gate * (1.0 + tanh(math.sqrt(2.0 / math.pi) * (gate + 0.044715 * gate**3)))


def gelu_tanh_and_mul_cut_constant(input, constant=0.0447):
    gate, up = halves(input)
    return (0.5 * gate * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (gate + constant * gate**3))) * up).to(input.dtype)


def gelu_tanh_and_mul_wrong_constant(input):
    return gelu_tanh_and_mul_cut_constant(input, 0.045)


def gelu_tanh_and_mul_s0(input):
    gate, up = halves(input)
    return (gelu_tanh(gate) * up).to(input.dtype)


def gelu_tanh_and_mul_s1(input):
    gate, up = input.chunk(2, -1)
    return F.gelu(gate, approximate="tanh") * up


def gelu_tanh_and_mul_hardware_s0(input):
    gate, up = halves(input)
    return (gelu_tanh(gate, tanh) * up).to(input.dtype)


def gelu_tanh_and_mul_hardware_s1(input):
    gate, up = halves(input)
    return (gelu_tanh(gate, tanh).to(input.dtype).float() * up).to(input.dtype)


def gelu_tanh_and_mul_is_erf(input):
    return gelu_and_mul_s0(input)


def silu_and_mul_swapped(input):
    up, gate = halves(input)
    return (F.silu(gate) * up).to(input.dtype)


def silu_and_mul_rounds_the_sigmoid(input):
    gate, up = halves(input)
    return (gate * torch.sigmoid(gate).to(input.dtype).float() * up).to(input.dtype)


def gelu_and_mul_is_tanh(input):
    return gelu_tanh_and_mul_s0(input)


def swigluoai_and_mul_s0(input, alpha, limit):
    return limited(*pairs(input), alpha, limit).to(input.dtype)


def swigluoai_and_mul_s2(input, alpha, limit):
    gate, up = input[..., 0::2].clamp(max=limit), input[..., 1::2].clamp(-limit, limit)
    return (up + 1) * (gate * torch.sigmoid(gate * alpha))


def swigluoai_and_mul_alpha_fixed(input, alpha, limit):
    return swigluoai_and_mul_s0(input, 1.702, limit)


def swigluoai_and_mul_limit_fixed(input, alpha, limit):
    return swigluoai_and_mul_s0(input, alpha, 7.0)


def swigluoai_and_mul_limit_ignored(input, alpha, limit):
    return swigluoai_and_mul_s0(input, alpha, math.inf)


def swigluoai_and_mul_limit_off(input, alpha, limit):
    return swigluoai_and_mul_s0(input, alpha, 1.001 * limit)


def swigluoai_and_mul_gate_clamped_below(input, alpha, limit):
    gate, up = pairs(input)
    return limited(gate.clamp(min=-limit), up, alpha, limit).to(input.dtype)


def swigluoai_and_mul_up_not_clamped_below(input, alpha, limit):
    gate, up = pairs(input)
    gate = gate.clamp(max=limit)
    return (gate * torch.sigmoid(alpha * gate) * (up.clamp(max=limit) + 1)).to(input.dtype)


def swigluoai_and_mul_nan_lost(input, alpha, limit):
    return swigluoai_and_mul_s0(torch.where(input.isnan(), limit, input), alpha, limit)


def swigluoai_and_mul_one_limit_only(input, alpha, limit):
    if limit != 7.0:
        raise ValueError("limit must be 7")
    return swigluoai_and_mul_s0(input, alpha, limit)


def swigluoai_and_mul_refuses_other_limits(input, alpha, limit):
    if limit != 7.0:
        raise Refused("limit must be 7")
    return swigluoai_and_mul_s0(input, alpha, limit)


def pairs(input):
    return input[..., 0::2].float(), input[..., 1::2].float()


def limited(gate, up, alpha, limit):
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + 1)

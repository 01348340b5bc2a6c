"""Hugging Face transformers: what a Llama or Gemma model computes with its own modules."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

from reference.operators import operator
from reference.providers.claim import ADD, GATED, GEMMA_ADD, GEMMA_NORM, NORM, Claim
from reference.providers.library import LibraryProvider

_ACT2FN_NAMES = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


_HF = "transformers 5.17.0"
CLAIMS = (
    Claim("hf", ADD, "R1W1", f"{_HF}: models/llama LlamaRMSNorm after a separate add", "gpu"),
    Claim("hf", NORM, "W1", f"{_HF}: models/llama LlamaRMSNorm", "gpu"),
    Claim("hf", GEMMA_ADD, "R1W0", f"{_HF}: models/gemma GemmaRMSNorm after a separate add", "gpu"),
    Claim("hf", GEMMA_NORM, "W0", f"{_HF}: models/gemma GemmaRMSNorm", "gpu"),
    Claim("hf", GATED, "S1", f"{_HF}: models/llama LlamaMLP with ACT2FN", "gpu"),
)


class HuggingFace(LibraryProvider):
    """LlamaRMSNorm or GemmaRMSNorm after `residual + hidden_states`; `act_fn(gate) * up` as in LlamaMLP.

    LlamaRMSNorm: `weight * T(h * rsqrt(mean(h^2) + eps))`: R1W1, W1. GemmaRMSNorm: `T(h * rstd * (1 + fp32(weight)))`:
    R1W0, W0. Gated: ACT2FN's silu, gelu and gelu_pytorch_tanh are torch's functions on T: S1. An fp32 weight makes
    LlamaRMSNorm return fp32; the adapter rounds that to T. CPU and CUDA; nothing is refused.

    Source: transformers 5.17.0, models/llama/modeling_llama.py, models/gemma/modeling_gemma.py, activations.py.
    """

    name = "hf"
    library = "hf"
    on_record = CLAIMS
    modules = ("transformers",)
    distribution = "transformers"
    needs_cuda = False

    def _native(self, op: str) -> Callable:
        which = operator(op)
        if which.activation is not None:
            activate = import_module("transformers.activations").ACT2FN[_ACT2FN_NAMES[which.activation]]

            def gated(input: torch.Tensor) -> torch.Tensor:
                gate, up = input.chunk(2, dim=-1)
                return activate(gate) * up

            return gated
        module = _norm_module(which.weight_bias != 0.0)
        eps_name = "eps" if which.weight_bias else "variance_epsilon"

        def norm(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
            module.weight = weight
            setattr(module, eps_name, eps)
            return module(input).to(input.dtype)

        def add_norm(
            input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
        ) -> tuple[torch.Tensor, torch.Tensor]:
            total = residual + input
            return norm(total, weight, eps), total

        return add_norm if which.mutated else norm


def _norm_module(gemma: bool) -> torch.nn.Module:
    """A norm module whose weight is a plain attribute, so that each call can hand it its own."""
    if gemma:
        module = import_module("transformers.models.gemma.modeling_gemma").GemmaRMSNorm(1)
    else:
        module = import_module("transformers.models.llama.modeling_llama").LlamaRMSNorm(1)
    del module.weight
    return module

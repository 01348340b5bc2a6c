"""Hugging Face transformers: what a Llama or Gemma model computes with its own modules."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace

import torch

from reference.operators import operator
from reference.providers.claim import ADD, GATED, GEMMA_ADD, GEMMA_NORM, NORM, ROUNDING_EVERY_OPERATION, Claim
from reference.providers.library import LibraryProvider

_ACT2FN_NAMES = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


_HF = "transformers 5.17.0"
CLAIMS = (
    Claim("hf", ADD, "R1W1", f"{_HF}: models/llama LlamaRMSNorm after a separate add", "gpu"),
    Claim("hf", NORM, "W1", f"{_HF}: models/llama LlamaRMSNorm", "gpu"),
    Claim("hf", GEMMA_ADD, "R1W0", f"{_HF}: models/gemma GemmaRMSNorm after a separate add", "gpu"),
    Claim("hf", GEMMA_NORM, "W0", f"{_HF}: models/gemma GemmaRMSNorm", "gpu"),
    Claim("hf", GATED, "S1", f"{_HF}: models/llama LlamaMLP with ACT2FN", "gpu"),
    Claim("hf", ROUNDING_EVERY_OPERATION, "S2", f"{_HF}: models/gpt_oss GptOssExperts._apply_gate", "cpu"),
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

    def _refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        """The gate of gpt-oss, where the installed version has no function of it."""
        which = operator(op)
        if which.activation and which.parameters and _apply_gate() is None:
            return "this version of transformers has no GptOssExperts._apply_gate"
        return None

    def _native(self, op: str) -> Callable:
        which = operator(op)
        if which.parameters and which.activation:
            return _gpt_oss_gate()
        if which.activation:
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


def _apply_gate() -> Callable | None:
    """`GptOssExperts._apply_gate`, which older versions of transformers write out in its caller: None."""
    experts = import_module("transformers.models.gpt_oss.modeling_gpt_oss").GptOssExperts
    return getattr(experts, "_apply_gate", None)


def _gpt_oss_gate() -> Callable:
    """The gate alone: it reads nothing of its module but the two numbers."""
    apply_gate = _apply_gate()
    assert apply_gate, "`_refuses` asks first"

    def gated(input: torch.Tensor, alpha: float, limit: float) -> torch.Tensor:
        return apply_gate(SimpleNamespace(alpha=alpha, limit=limit), input)

    return gated


def _norm_module(gemma: bool) -> torch.nn.Module:
    """A norm module whose weight is a plain attribute, so that each call can hand it its own."""
    if gemma:
        module = import_module("transformers.models.gemma.modeling_gemma").GemmaRMSNorm(1)
    else:
        module = import_module("transformers.models.llama.modeling_llama").LlamaRMSNorm(1)
    del module.weight
    return module

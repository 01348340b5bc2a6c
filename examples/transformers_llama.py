"""Puts this project's kernels into a Hugging Face Llama, in one call, and counts the logits whose bits change.

    python examples/transformers_llama.py [cpu|cuda]

Under the contract that Hugging Face's Llama follows (norms R1W1 and W1, activation S1) no bit of the logits changes; under
FlashInfer's (R0W0, W0, S0) most do. A contract leaves the order of a sum free, and the model here is drawn so that no order
matters: see `random_llama`.
"""

from __future__ import annotations

import sys
from types import MethodType

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaMLP, LlamaRMSNorm

from numba_kernels import fused_add_rmsnorm, rmsnorm, silu_and_mul

HUGGING_FACE = ("R1W1", "S1")  # the norms' contract and the activation's
FLASHINFER = ("R0W0", "S0")


def use_numba_kernels(model: torch.nn.Module, norm: str = "R1W1", activation: str = "S1") -> torch.nn.Module:
    """Replaces every norm and gated activation of a Llama, in place; returns the model. For inference.

    ``norm``: contract of ``residual + attention`` and the norm after it, one kernel; norms without a sum before them take its
    second half. ``activation``: contract of ``silu(gate) * up``. The sum overwrites the layer's input, as in every fused form, so
    `output_hidden_states` would show the sums in the places of the layers' inputs.
    """

    def norm_forward(self: LlamaRMSNorm, hidden_states: torch.Tensor) -> torch.Tensor:
        return rmsnorm(hidden_states, self.weight, self.variance_epsilon, contract=norm[2:])

    def mlp_forward(self: LlamaMLP, x: torch.Tensor) -> torch.Tensor:
        # Two projections, as in the original: one twice as wide might sum in another order.
        return self.down_proj(silu_and_mul(torch.cat([self.gate_proj(x), self.up_proj(x)], dim=-1), contract=activation))

    def layer_forward(self: LlamaDecoderLayer, hidden_states: torch.Tensor, **options: object) -> torch.Tensor:
        residual = hidden_states
        hidden_states, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **options)
        after = self.post_attention_layernorm
        fused_add_rmsnorm(hidden_states, residual, after.weight, after.variance_epsilon, contract=norm)
        return residual + self.mlp(hidden_states)

    forwards = {LlamaRMSNorm: norm_forward, LlamaMLP: mlp_forward, LlamaDecoderLayer: layer_forward}
    for module in model.modules():
        if type(module) in forwards:
            module.forward = MethodType(forwards[type(module)], module)
    return model


def random_llama(seed: int = 0, device: str = "cpu") -> LlamaForCausalLM:
    """A two-layer Llama in bf16 with random weights, whose rows have sums of squares that fp32 holds exactly.

    The values of an embedding lie in ±[1.25, 1.75) and what a layer adds is small, so those of every row that is normalised lie
    in ±[1, 2): multiples of 2^-7, whose squares are multiples of 2^-14, and 256 of which sum to less than 2^10. That is 24 bits:
    any order of the sum gives the same fp32 number. (Weights drawn as usual leave a few elements in a million to the order.)
    The gates lie about ±1: near 0 there is one, -2^-8, whose silu is nearly the midpoint of two bf16 values, and releases of
    torch differ there.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-6,
        mlp_bias=True,
        initializer_range=0.01,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        embedding = model.model.embed_tokens.weight
        embedding.copy_((1.25 + 0.49 * torch.rand_like(embedding)) * _signs(embedding))
        for module in model.modules():
            if isinstance(module, LlamaRMSNorm):  # all ones at first, which would hide where the weight is multiplied
                module.weight.uniform_(0.5, 1.5)
            if isinstance(module, LlamaMLP):
                module.gate_proj.bias.copy_(_signs(module.gate_proj.bias))
    return model.to(device).eval()


def _signs(like: torch.Tensor) -> torch.Tensor:
    """1 or -1 at random, in the shape of a tensor."""
    return torch.where(torch.rand_like(like) < 0.5, -1.0, 1.0)


def tokens(seed: int = 1, device: str = "cpu") -> torch.Tensor:
    """Two sequences of 16 random tokens."""
    return torch.randint(0, 512, (2, 16), generator=torch.Generator().manual_seed(seed)).to(device)


def changed_logits(device: str, norm: str, activation: str, seed: int = 0) -> tuple[int, int]:
    """How many logits have other bits with our kernels under this contract than with torch's modules, and of how many."""
    model, words = random_llama(seed, device), tokens(device=device)
    with torch.inference_mode():
        before = model(words).logits
        after = use_numba_kernels(model, norm, activation)(words).logits
    return int((before.view(torch.int16) != after.view(torch.int16)).sum()), before.numel()


def main() -> int:
    """Counts under both contracts; 0 where Hugging Face's keeps every bit."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    changed = {}
    for name, contract in (("Hugging Face's", HUGGING_FACE), ("FlashInfer's", FLASHINFER)):
        changed[name], of = changed_logits(device, *contract)
        print(f"{device}, {name} contract ({', '.join(contract)}): {changed[name]} of {of} logits have other bits")
    return int(changed["Hugging Face's"] > 0 or changed["FlashInfer's"] == 0)


if __name__ == "__main__":
    sys.exit(main())

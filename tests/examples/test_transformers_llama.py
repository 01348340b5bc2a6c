"""The Llama of transformers with our kernels: which bits stay, which change, and that neither is luck."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformers_llama.py"
SILU_BELOW_THIS_IS_ZERO_IN_TORCH = -89.0  # in bf16 torch's silu gives -0 from here on down, ours what the formula gives
# The gates above it whose silu torch 2.11 rounds the other way: 0.04 ulp of fp32 from the midpoint of two bf16 values.
NEAR_A_TIE = {-0.00390625}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def example():
    """The example as a module, imported here: transformers takes seconds that collecting tests need not."""
    pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location("transformers_llama", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("device", DEVICES)
def test_no_logit_changes_a_bit_under_the_contract_that_the_library_follows(example, device):
    assert example.changed_logits(device, norm="R1W1", activation="S1") == (0, 2 * 16 * 512)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("norm", "activation"),
    [("R1W1", "S0"), *[pytest.param(*pair, marks=pytest.mark.slow) for pair in (("R0W0", "S0"), ("R0W1", "S1"), ("R1W0", "S1"))]],
)
def test_logits_change_under_every_other_contract(example, device, norm, activation):
    changed, of = example.changed_logits(device, norm=norm, activation=activation)
    assert changed > of // 100


def test_the_order_of_a_sum_and_the_tail_of_silu_cannot_matter_in_this_model(example):
    """What the first test relies on: sums of squares that fp32 holds in any order, and gates where both silus give one value."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    model = example.random_llama()
    rows, gates = [], []
    for module in model.modules():
        if isinstance(module, LlamaRMSNorm):
            module.register_forward_pre_hook(lambda _, given: rows.append(given[0].double()))
        if hasattr(module, "gate_proj"):
            module.gate_proj.register_forward_hook(lambda _, __, gate: gates.append(gate.float()))
    with torch.inference_mode():
        model(example.tokens())
    assert len(rows) == 5
    for row in rows:
        steps = row * 2.0**7
        assert bool((steps == steps.round()).all())
        assert float((steps * steps).sum(dim=-1).max()) <= 2**24
    assert len(gates) == 2
    assert min(float(gate.min()) for gate in gates) > SILU_BELOW_THIS_IS_ZERO_IN_TORCH
    assert not any(bool((gate == tie).any()) for gate in gates for tie in NEAR_A_TIE)


@pytest.mark.parametrize("device", DEVICES)
def test_s1_gives_torchs_value_for_every_bf16_gate_above_its_tail_but_one(device):
    """All 65 536 gates: S1's first rounding is a function of 16 bits, and the product after it is exact in fp32."""
    from numba_kernels import silu_and_mul

    gates = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).view(16, 4096).to(device)
    ours = silu_and_mul(torch.cat([gates, torch.ones_like(gates)], dim=-1), contract="S1")
    torchs = torch.nn.functional.silu(gates)
    other = (ours.view(torch.int16) != torchs.view(torch.int16)) & ~(ours.isnan() & torchs.isnan())
    above = {gate for gate in gates[other].tolist() if gate > SILU_BELOW_THIS_IS_ZERO_IN_TORCH}
    assert above <= NEAR_A_TIE


def test_every_norm_and_activation_is_ours_after_one_call(example, monkeypatch):
    called = []
    for name in ("fused_add_rmsnorm", "rmsnorm", "silu_and_mul"):
        ours = getattr(example, name)
        monkeypatch.setattr(example, name, lambda *args, _name=name, _ours=ours, **kw: called.append(_name) or _ours(*args, **kw))
    model = example.use_numba_kernels(example.random_llama())
    with torch.inference_mode():
        model(example.tokens())
    assert called == ["rmsnorm", "fused_add_rmsnorm", "silu_and_mul"] * 2 + ["rmsnorm"]


def test_the_command_says_how_many_logits_changed(example, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["transformers_llama.py", "cpu"])
    assert example.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cpu, Hugging Face's contract (R1W1, S1): 0 of 16384 logits have other bits"
    assert "FlashInfer's contract (R0W0, S0)" in lines[1]

"""TensorRT-LLM: no provider, a claim only."""

from __future__ import annotations

from reference.providers.claim import GATED, Claim

CLAIMS = (Claim("tensorrt-llm", GATED, "S0", "calls FlashInfer's silu_and_mul", "", "not read again for this table"),)

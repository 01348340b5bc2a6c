"""Which providers' launches ask for programmatic dependent launch."""

from __future__ import annotations

from importlib import import_module

import torch

from difftest.bench.shapes import OURS


def uses_pdl(name: str, device: torch.device) -> bool:
    """Whether the provider's launches ask for programmatic dependent launch on this device.

    FlashInfer's functions ask where `device_support_pdl` says so, and the providers pass that on; ours from Hopper on. The
    others have no such option.
    """
    if device.type != "cuda":
        return False
    if name == OURS:
        return torch.cuda.get_device_capability(device) >= (9, 0)
    if name.startswith("flashinfer"):
        try:
            return bool(import_module("flashinfer.utils").device_support_pdl(device))
        except Exception:  # another version of the library: its launches are as it makes them
            return False
    return False

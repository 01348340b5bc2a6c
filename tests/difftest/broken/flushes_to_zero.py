"""Right, but for its import, which makes zeros of all subnormal numbers in the process."""

import torch

from difftest.mutants.plain import fused_add_rmsnorm  # noqa: F401

torch.set_flush_denormal(True)

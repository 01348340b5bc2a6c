"""The textbook kernels as a provider: what numba.cuda makes of each operator written as plainly as it can be."""

from __future__ import annotations

import torch

from difftest.numba_provider import NumbaProvider
from reference.operators import OPERATORS


class TextbookProvider(NumbaProvider):
    """One block a row, the row in shared memory. Refuses norms of rows that don't fit there; otherwise as the Numba kernels."""

    name = "textbook"
    module = "numba_kernels.textbook"

    def refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        """An operator that the package does not have, or a norm of rows that are wider than a block's shared memory."""
        reason = super().refuses(op, dtype, width, device)
        if reason is not None or "weight" not in OPERATORS[op].inputs:
            return reason
        most = self._module().widest(None if device.type == "cpu" else device.index or 0)
        return None if width <= most else f"a row in fp32 is kept in the shared memory of a block, which holds {most} elements"

"""The textbook kernels as a provider: what numba.cuda makes of each operator written as plainly as it can be."""

from __future__ import annotations

import torch

from difftest.providers.numba import NumbaProvider


class TextbookProvider(NumbaProvider):
    """One block a row, the row in shared memory. Refuses norms of rows that don't fit there; otherwise as the Numba kernels."""

    name = "textbook"
    module = "numba_kernels.textbook"

    def refuses(self, op: str, dtype: torch.dtype, width: int, device: torch.device) -> str | None:
        """An operator that the package does not have, or a norm of rows that are wider than a block's shared memory."""
        reason = super().refuses(op, dtype, width, device)
        most = None if reason else self._module().widest(op, None if device.type == "cpu" else device.index or 0)
        if most is None or width <= most:
            return reason
        return f"a row in fp32 is kept in the shared memory of a block, which holds {most} elements"

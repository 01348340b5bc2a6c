"""The textbook kernels as a provider: what numba.cuda makes of each operator written as plainly as it can be."""

from __future__ import annotations

import torch

from difftest.providers.numba import NumbaProvider
from reference.providers.protocol import Call


class TextbookProvider(NumbaProvider):
    """One block a row, the row in shared memory. Refuses norms of rows that don't fit there; otherwise as the Numba kernels."""

    name = "textbook"
    module = "numba_kernels.textbook"

    def check(self, case: Call) -> str | None:
        """As the Numba kernels; and a norm of rows that are wider than a block's shared memory."""
        reason, device = super().check(case), torch.device(case.device)
        most = None if reason else self._module().widest(case.op, None if device.type == "cpu" else device.index or 0)
        if most is None or case.width <= most:
            return reason
        return f"a row in fp32 is kept in the shared memory of a block, which holds {most} elements"

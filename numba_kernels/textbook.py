"""The operators by the textbook kernels (kernels/textbook.py): the names, arguments and checks of ``numba_kernels`` itself.

Plain and slower, for reading and for holding the fast kernels against; for rows whose fp32 values fit the shared memory of a
block. ``enable_pdl`` is taken and has no effect; ``torch.compile`` sees no operator here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import operators as _operators
from .declarations import OPERATORS, Checked, Launch, Operator
from .runtime.calls import make_call

if TYPE_CHECKING:
    from .plans import Plan

RESERVED_BYTES = 4 * 32  # of shared memory: a sum for each warp of the largest block


def widest(device: int | None = None) -> int:
    """Elements of the longest row that a norm takes on CUDA device number ``device``.

    None: for host arrays, on the emulator or, where there is a GPU, on the current one.
    """
    from . import tuning
    from .runtime import host, launch

    if device is None and not host.emulates():
        from numba import cuda

        device = cuda.get_current_device().id
    target = tuning.EMULATOR if device is None else launch.target(device)
    return (target.shared_bytes - RESERVED_BYTES) // 4


@dataclass(frozen=True)
class Textbook:
    """Another launch's plan, with the textbook kernels' config in place of tuning's choice."""

    fast: Launch

    @property
    def buffers(self) -> tuple[str, ...]:
        """The fast kernel's."""
        return self.fast.buffers

    def plan(self, call: Checked) -> Plan:
        """Raises ValueError for rows that are too wide."""
        from .kernels.config import TextbookConfig, TextbookGatedConfig
        from .plans import NormPlan
        from .runtime.arrays import CPU

        plan = self.fast.plan(call)
        if not isinstance(plan, NormPlan):
            return replace(plan, config=TextbookGatedConfig())
        device = call.rows["input"].array.device
        most = widest(None if device == CPU else device)
        if plan.width > most:
            raise ValueError(
                f"input: rows of {plan.width} elements; the textbook kernels keep a row in the shared memory of a block, "
                f"and {most} fit here"
            )
        return replace(plan, config=TextbookConfig())


def _textbook(operator: Operator) -> Callable[..., Any]:
    """The public function of ``operator``, run by its textbook kernel."""
    run = make_call(replace(operator, launch=Textbook(operator.launch)), direct=True)
    run.__name__ = run.__qualname__ = operator.name
    run.__doc__ = getattr(_operators, operator.name).__doc__
    return run


__all__ = list(OPERATORS)
globals().update({name: _textbook(operator) for name, operator in OPERATORS.items()})

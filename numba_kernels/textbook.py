"""The operators by the textbook kernels (kernels/textbook.py): the names, arguments and checks of ``numba_kernels`` itself.

Plain and slower, for reading and for holding the fast kernels against; for rows whose fp32 values fit the shared memory of a
block. ``enable_pdl`` is taken and has no effect; ``torch.compile`` sees no operator here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import operators as _operators
from .declarations import OPERATORS, Checked, Gated, Launch, Norm, Operator
from .runtime.calls import make_call

if TYPE_CHECKING:
    from .plans import Plan

RESERVED_BYTES = 4 * 32  # of shared memory: a sum for each warp of the largest block


def widest(name: str, device: int | None = None) -> int | None:
    """Elements of the longest row that an operator takes on CUDA device number ``device``; None: of any length.

    A ``device`` of None means host arrays: the emulator or, where there is a GPU, the current one.
    """
    return _elements_of_shared_memory(device) if isinstance(OPERATORS[name].launch, Norm) else None


def _elements_of_shared_memory(device: int | None) -> int:
    """How many fp32 values of a row a block has room for; ``device`` as in :func:`widest`."""
    from . import tuning
    from .runtime import host, launch

    if device is None and not host.emulates():
        from numba import cuda

        device = cuda.get_current_device().id
    target = tuning.EMULATOR if device is None else launch.target(device)
    return (target.shared_bytes - RESERVED_BYTES) // 4


class TextbookNorm(Norm):
    """The textbook kernel's config in place of what tuning chooses."""

    def plan(self, call: Checked) -> Plan:
        """Raises ValueError for rows that don't fit."""
        from .kernels.config import TextbookConfig
        from .runtime.arrays import CPU

        x = call.rows["input"]
        most = _elements_of_shared_memory(None if x.array.device == CPU else x.array.device)
        if x.width > most:
            raise ValueError(
                f"input: rows of {x.width} elements; the textbook kernels keep a row in the shared memory of a block, "
                f"and {most} fit here"
            )
        return replace(super().plan(call), config=TextbookConfig())


class TextbookGated(Gated):
    """As TextbookNorm, for rows of any length."""

    def plan(self, call: Checked) -> Plan:
        """Never raises."""
        from .kernels.config import TextbookGatedConfig

        return replace(super().plan(call), config=TextbookGatedConfig())


LAUNCHES: dict[type, Callable[..., Launch]] = {Norm: TextbookNorm, Gated: TextbookGated}


def _textbook(operator: Operator) -> Callable[..., Any]:
    """The public function of ``operator``, run by its textbook kernel."""
    launch = LAUNCHES[type(operator.launch)](**vars(operator.launch))
    run = make_call(replace(operator, launch=launch), direct=True)
    run.__name__ = run.__qualname__ = operator.name
    run.__doc__ = getattr(_operators, operator.name).__doc__
    return run


__all__ = list(_operators.__all__)
globals().update({name: _textbook(OPERATORS[name]) for name in __all__})

"""A launch in one step from Python: compiled code fills the driver's structures on its own stack and calls ``cuLaunchKernelEx``.

On an H200's host this takes 3.5 µs, driver included, where ``cuda.core.launch`` with ten parameters takes 4.4.
No buffer is shared between calls, so it is safe from any number of threads.

The compiled code is C (_launcher.c), or where no C compiler was at hand when the package was installed, made by Numba
(jitted_launcher.py), whose import takes half a second of the first launch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


@cache
def entry(addresses: int) -> Callable[..., int]:
    """``launch(packed, stream, *addresses) -> status``. Each address and constant is one 8-byte kernel parameter."""
    try:
        from ._launcher import launch  # type: ignore[import-not-found]
    except ImportError:
        from .jitted_launcher import LAUNCH

        return LAUNCH[addresses]
    return launch

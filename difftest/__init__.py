"""The differential tester: cases, comparison in ULP, verdicts, reports.

Uses `reference` and `numba_kernels` through small interfaces; neither of them may import it. `assert_conforms` is what other
people's tests call; nothing is imported before it is asked for.
"""

from typing import Any

__all__ = ["assert_conforms"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from difftest.testing.conforms import assert_conforms

    return assert_conforms

"""Tests marked ``gpu`` are skipped, with the reason, where there is no CUDA device; coverage is measured where it costs little."""

from pathlib import Path

import pytest
import torch

COMPILING = (Path(__file__).parent / "kernels", Path(__file__).parent / "replay")


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
    _measure_coverage_once(items)


def _measure_coverage_once(items):
    """Coverage doubles the time of Numba's compiler, in which these tests spend theirs: a function's first parameters only."""
    seen = set()
    for item in items:
        if item.path.parent not in COMPILING:
            continue
        function = item.nodeid.partition("[")[0]
        if function in seen:
            item.add_marker(pytest.mark.no_cover)
        seen.add(function)

"""Tests marked ``gpu`` are skipped, with the reason, where there is no CUDA device; coverage is measured where it is cheap."""

import sys
from pathlib import Path

import pytest
import torch

COMPILING = (Path(__file__).parent / "numba_kernels", Path(__file__).parent / "emulator")
UNTRACED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
    seen = set()
    for item in items:
        function = item.nodeid.partition("[")[0]
        item.stash[UNTRACED] = item.path.parent in COMPILING and function in seen
        seen.add(function)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Coverage doubles the time of Numba's compiler, in which some tests spend theirs: they are measured with their first
    parameters. (pytest-cov's own marker for this has no effect in the processes of pytest-xdist.)
    """
    trace = sys.gettrace()
    if item.stash[UNTRACED]:
        sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(trace)

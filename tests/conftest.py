"""Which tests run, and what is measured in them: no GPU tests without a GPU, a budget of time, coverage where it is cheap."""

import gc
import random
import sys
import time
from pathlib import Path

import pytest

from difftest.run import allocator

COMPILING = {Path(__file__).parent / room for room in ("numba_kernels", "emulator")}
UNTRACED = pytest.StashKey[bool]()
BEGAN = pytest.StashKey[float]()


def pytest_addoption(parser):
    parser.addoption("--budget", type=float, metavar="SECONDS", help="skip, with the reason, what has not begun after this time")
    parser.addoption("--order-seed", metavar="TEXT", help="an order of the tests drawn from this, so that a budget favours none")


def pytest_configure(config):
    allocator.keep_freed()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What is collected and imported stays: looking through it for garbage took 6 of 209 seconds, 2 of them while it came."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    import torch  # here, not above: the process that hands out the tests collects none, and waits for no import

    if not torch.cuda.is_available():
        left_out = [item for item in items if item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=left_out)  # a third of all: to skip each takes half a minute
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    functions = {}
    for item in items:
        function = item.nodeid.partition("[")[0]
        item.stash[UNTRACED] = bool(COMPILING & set(item.path.parents)) and function in functions
        functions.setdefault(function, []).append(item)
    seed = config.getoption("--order-seed")
    if seed:  # whole functions: tests of one function share what they compile
        order = sorted(functions)
        random.Random(seed).shuffle(order)
        items[:] = [item for function in order for item in functions[function]]


def pytest_collection_finish(session):
    session.config.stash[BEGAN] = time.monotonic()


def pytest_runtest_setup(item):
    budget = item.config.getoption("--budget")
    if budget is not None and time.monotonic() - item.config.stash[BEGAN] > budget:
        pytest.skip(f"the budget of {budget:g} seconds is spent")


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

"""The pytest plugin: a fixture `assert_conforms` whose seed, device, time and folder of failing cases are options of pytest.

Loaded into every run of pytest where the package is installed, so it imports nothing but pytest ahead of a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, each of which a call of the fixture may say otherwise."""
    group = parser.getgroup("difftest", "numerical kernels and their contracts (difftest)")
    group.addoption("--difftest-seed", type=int, metavar="N", help="another seed gives other cases")
    group.addoption("--difftest-device", metavar="auto|cpu|cuda[:N]", help="where the functions run")
    group.addoption("--difftest-time-budget", type=float, metavar="SECONDS", help="of each assertion: search for so long in all")
    group.addoption("--difftest-failures", metavar="DIR", help="folder of failing cases [default: in pytest's cache]")


@pytest.fixture
def assert_conforms(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`difftest.assert_conforms` with what the command line says; failing cases are kept, and run first next time."""
    from difftest import assert_conforms

    asked = {name: request.config.getoption(f"--difftest-{name}") for name in ("seed", "device", "time-budget")}
    given = {name.replace("-", "_"): value for name, value in asked.items() if value is not None}
    return partial(assert_conforms, failures=_folder(request), **given)


def _folder(request: pytest.FixtureRequest) -> Path:
    """A folder for this test alone: in the one that was named, or in pytest's cache."""
    own = re.sub(r"[^\w.-]+", "-", request.node.nodeid)
    named = request.config.getoption("--difftest-failures")
    cache = getattr(request.config, "cache", None)
    if named:
        return Path(named) / own
    return (cache.mkdir("difftest") if cache else request.getfixturevalue("tmp_path")) / own

"""What `make` and CI run: the bounded order of slow tests, the lowest versions, and that one command calls all."""

import importlib.util
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.fixture
def collection(monkeypatch):
    """The hooks of the tests' conftest, and made-up items: three functions of two tests each, with the options given."""
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "tests" / "conftest.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)

    def collected(**options):
        config = SimpleNamespace(
            getoption=lambda name: options.get(name.strip("-").replace("-", "_")),
            stash=pytest.Stash(),
            hook=SimpleNamespace(pytest_deselected=lambda items: None),
        )
        items = [
            SimpleNamespace(
                nodeid=f"test_x.py::test_{name}[{number}]",
                path=ROOT / "tests" / "x.py",
                keywords={},
                get_closest_marker=lambda name: None,
                stash=pytest.Stash(),
                config=config,
            )
            for name in "abcdefgh"
            for number in range(2)
        ]
        hooks.pytest_collection_modifyitems(config, items)
        hooks.pytest_collection_finish(SimpleNamespace(config=config))
        return hooks, items

    return collected


def test_what_does_not_begin_within_the_budget_is_skipped_with_the_reason(collection, monkeypatch):
    hooks, items = collection(budget=100.0)
    now = time.monotonic()
    monkeypatch.setattr(hooks.time, "monotonic", lambda: now + 99)
    hooks.pytest_runtest_setup(items[0])
    monkeypatch.setattr(hooks.time, "monotonic", lambda: now + 101)
    with pytest.raises(pytest.skip.Exception, match="the budget of 100 seconds is spent"):
        hooks.pytest_runtest_setup(items[0])
    hooks, items = collection()
    hooks.pytest_runtest_setup(items[0])


def test_an_order_is_drawn_from_its_seed_and_keeps_a_function_together(collection):
    def order(**options):
        return [item.nodeid for item in collection(**options)[1]]

    plain, drawn = order(), order(order_seed="a commit")
    assert plain == sorted(plain)
    assert plain != drawn == order(order_seed="a commit") != order(order_seed="another")
    assert sorted(drawn) == plain
    assert all(first.replace("[0]", "[1]") == second for first, second in zip(drawn[::2], drawn[1::2], strict=True))


def test_ci_calls_every_job():
    """`.ci/run` calls `make ci`, and that every target that checks something."""
    assert "exec make ci" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    jobs = re.search(r"^ci:\n((?:\t.*\n)+)", MAKEFILE, re.M).group(1)
    assert re.findall(r"\$\(MAKE\) (\w+)", jobs) == ["lint", "test", "pages", "bits", "slow"]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.M).group(1)
    for tool in ("ruff check", "ruff format --check", "mypy", "lint-imports", ".ci/shape.py"):
        assert tool in lint


def test_coverage_may_not_fall():
    assert "LEAST := numba_kernels:72 reference:83 difftest:94\n" in MAKEFILE
    assert "$(MAKE) test COVERAGE=1" in MAKEFILE


@pytest.fixture(scope="module")
def floors():
    """`.ci/floors.py` as a module."""
    spec = importlib.util.spec_from_file_location("floors", ROOT / ".ci" / "floors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lowest_versions_are_those_of_pyproject(floors):
    given = """
    [project]
    dependencies = ["numpy>=1.26,<2.5", "numba-cuda==0.30.4"]
    [project.optional-dependencies]
    test = ["numba-cuda[cu13]==0.30.4", "pytest>=8.2"]
    peers = ["quack-kernels"]
    """
    assert floors.floors(given) == {"numpy": "1.26", "numba-cuda": "0.30.4", "numba-cuda[cu13]": "0.30.4", "pytest": "8.2"}
    with pytest.raises(ValueError, match="click: no lowest version"):
        floors.floors('[project]\ndependencies = ["click"]')


def test_every_dependency_has_a_lowest_version(floors):
    lowest = floors.floors((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"numpy", "numba", "numba-cuda", "torch", "ml_dtypes", "mpmath", "click", "rich", "transformers"} <= lowest.keys()

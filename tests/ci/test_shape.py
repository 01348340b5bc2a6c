"""`.ci/shape.py` counts what it says, on small made-up trees: each count must be able to fail."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "shape.py"


@pytest.fixture(scope="module")
def shape():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("shape", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["shape"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def count(shape, tmp_path):
    """Counts by a function's name in a tree of the files given."""

    def counted(name, files):
        for path, text in files.items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return getattr(shape, name)(shape.Tree.read(tmp_path))

    return counted


@pytest.mark.parametrize(
    "line",
    [
        'x = "add_norm"',
        'x = {"gated": 1}',
        'if op.family in ("norm", "add_norm"): pass',
        "x = op.family",
        'if activation == "silu": pass',
        'if op.name in ("rmsnorm", "gemma_rmsnorm"): pass',
        'if "swigluoai_and_mul" != name: pass',
        'if name.startswith("gemma_"): pass',
        'if name.endswith("_and_mul"): pass',
        'match name:\n    case "gelu": pass',
    ],
)
def test_a_family_named_by_a_literal_is_found(count, line):
    found = count("family_literals", {"reference/a.py": line, "tests/test_a.py": line})
    assert found.found == 1
    assert "reference/a.py" in found.where[0]


def test_words_that_name_no_family_are_left_alone(count):
    text = '"""norm"""\ndef f(norm):\n    "gated"\n    return "the norm", normalise(norm), code.startswith("R1"), {"silu": f}'
    assert count("family_literals", {"difftest/a.py": text}).found == 0


CALL = "class A:\n    op: str\n    dtype: str\n    {rows}\n    width: int\n"


def test_every_class_that_describes_a_call_is_counted(count):
    found = count(
        "types_for_a_call",
        {
            "difftest/case.py": CALL.format(rows="lead: tuple[int, ...]"),
            "difftest/cell.py": CALL.format(rows="rows: int").replace("op: str", "op: 'str'"),
            "difftest/shape.py": "class Shape:\n    rows: int\n    width: int\n",
        },
    )
    assert [place.split(":")[0] for place in found.where] == ["difftest/case.py", "difftest/cell.py"]


def test_every_module_that_starts_processes_is_counted(count):
    found = count(
        "worker_pools",
        {
            "difftest/a.py": "p = context.Process(target=f)",
            "difftest/b.py": "with ProcessPoolExecutor() as pool: pass",
            "difftest/c.py": "subprocess.run([])",
        },
    )
    assert found.found == 2


def test_a_second_answer_to_whether_a_provider_can_run_is_counted(count):
    protocol = "class Provider:\n    def check(self, case): ...\n"
    caller = "def call(p, case):\n    if (why := p.check(case)): return why\n    def inner(): pass\n"
    found = count("availability_checks", {"reference/providers/protocol.py": protocol, "difftest/a.py": caller})
    assert found.found == 1
    found = count(
        "availability_checks",
        {
            "difftest/b.py": "def usable(p, case):\n    return p.check(case) or ('no device' if case.gpu else None)",
            "difftest/c.py": "class A:\n    def f(self, p):\n        return p.refuses(1)",
        },
    )
    assert [place.split()[1] for place in found.where] == ["usable", "A.f", "Provider.check"]


def test_the_lines_of_a_function_include_those_of_functions_inside_it(count):
    inner = "def outer():\n    def inner():\n" + "        x = 1\n" * 58
    assert count("longest_kernel", {"numba_kernels/kernels/a.py": inner}).found == 60
    found = count("longest_kernel", {"numba_kernels/kernels/a.py": inner + "    return inner\n"})
    assert (found.found, found.limit) == (61, 60)
    assert found.where[0] == "numba_kernels/kernels/a.py:1 outer: 61"


def test_an_import_inside_a_function_closes_a_circle(count):
    found = count(
        "import_cycles",
        {
            "numba_kernels/__init__.py": "",
            "numba_kernels/a.py": "from . import b",
            "numba_kernels/b.py": "def f():\n    from numba_kernels.c import g\n",
            "numba_kernels/c.py": "import numba_kernels.a",
            "numba_kernels/d.py": "from .a import x",
        },
    )
    assert found.where == ["numba_kernels.a <-> numba_kernels.b <-> numba_kernels.c"]


LAYERS = '[[tool.importlinter.contracts]]\nid = "x"\ntype = "layers"\ncontainers = ["difftest"]\nlayers = {layers}\n'


def test_what_stands_in_no_layer_counts_as_one(count, tmp_path):
    (tmp_path / "pyproject.toml").write_text(LAYERS.format(layers='["bench | matrix", "run"]'))
    assert count("layers", {f"difftest/{room}/a.py": "" for room in ("bench", "matrix", "run")}).found == 2
    assert count("layers", {"difftest/verdict.py": ""}).where == ["bench | matrix", "run", "in none: verdict"]


def test_lines_of_results_can_not_be_hidden_in_long_ones(count):
    assert count("result_lines", {"benchmarks/results/a": "1\n" * 70}).found == 70
    assert count("result_lines", {"benchmarks/results/a": "1" * 4000}).found == 10


def test_the_lines_of_the_readme_are_counted(count):
    assert count("readme_lines", {"README.md": "line\n" * 221}).found == 221


def test_the_status_says_whether_a_limit_is_passed(tmp_path):
    (tmp_path / "difftest").mkdir()
    (tmp_path / "README.md").write_text("line\n" * 220)
    run = [sys.executable, str(SCRIPT), "--root", str(tmp_path)]
    assert subprocess.run(run, capture_output=True).returncode == 0
    (tmp_path / "README.md").write_text("line\n" * 221)
    over = subprocess.run(run, capture_output=True, text=True)
    assert over.returncode == 1
    assert "lines of README.md                         221     220  over" in over.stdout

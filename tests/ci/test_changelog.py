"""CHANGELOG.md against the code: every schema is spoken of, and what moved is where the page says."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_schema_that_is_written_is_spoken_of():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "difftest").rglob("*.py"))
    written = set(re.findall(r'SCHEMA = "(numba-kernels/[\w-]+/\d+)"', sources))
    assert written
    assert written <= set(re.findall(r"`(numba-kernels/[^`]+)`", PAGE))


def test_what_moved_is_where_the_page_says():
    rows = re.findall(r"^\| `[^|]+ \| `([\w.]+)`", PAGE.partition("### Moved")[2], re.M)
    assert len(rows) > 10
    for name in rows:
        if "." in name and "NAME" not in name:
            assert importlib.util.find_spec(name), name


def test_the_lowest_versions_are_those_of_pyproject():
    named = dict(
        re.findall(r"(NumPy|torch|click|rich) (\d+\.\d+)", PAGE.partition("Lowest versions")[2].partition(". Before")[0])
    )
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert {name.lower(): version for name, version in named.items()} == dict(
        re.findall(r'"(numpy|torch|click|rich)>=([\d.]+)', project)
    )

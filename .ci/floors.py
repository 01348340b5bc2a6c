"""Prints the lowest version of each dependency that pyproject.toml allows, as requirements for pip.

    python .ci/floors.py > requirements.txt

Of the extras, those that the tests use. Written from pyproject.toml, so that no second list has to be kept.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

EXTRAS = ("test",)
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+(\[[\w,]+\])?)\s*(?P<operator>>=|==)\s*(?P<version>[\w.]+)")


def floors(pyproject: str) -> dict[str, str]:
    """Name (with its extras) -> the lowest version allowed. Raises ValueError for a dependency without a lowest version."""
    project = tomllib.loads(pyproject)["project"]
    extras = project.get("optional-dependencies", {})
    lowest = {}
    for each in [*project["dependencies"], *(line for extra in EXTRAS for line in extras.get(extra, ()))]:
        found = REQUIREMENT.match(each)
        if found is None:
            raise ValueError(f"{each}: no lowest version")
        lowest[found["name"]] = found["version"]
    return lowest


if __name__ == "__main__":
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    print(*(f"{name}=={version}" for name, version in floors(text).items()), sep="\n")

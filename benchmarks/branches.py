"""Line and branch coverage of the rooms that a verdict rests on, by the tests that concern them, on a machine without a GPU.

python benchmarks/branches.py benchmarks/results/coverage.jsonl        (minutes; --data FILE: of a run of `coverage` made before)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from difftest.report import jsonl  # noqa: E402
from difftest.run.environment import environment  # noqa: E402

SCHEMA = "numba-kernels/coverage/1"
ROOMS = ("difftest/verdict", "reference/exact", "difftest/run")
REPORTS = ("report/test_terminal.py", "report/test_page.py", "report/test_malformed.py")
TESTS = ("verdict", "matrix", "run", "search", *REPORTS, "../fuzz/test_readers.py")  # of tests/difftest
UNSAID = "no test of this selection reaches it"
WHY: dict[str, str] = {  # what is left, by file
    "difftest/run/memory.py": "memory of a GPU that two processes see",
    "difftest/run/perform.py": "the wait for a GPU",
}


def measure(data: Path, rooms: tuple[str, ...]) -> None:
    """Runs the tests under coverage."""
    tests = [*(f"tests/difftest/{each}" for each in TESTS), "tests/reference/exact"]
    command = [sys.executable, "-m", "coverage", "run", "--branch", f"--source={','.join(rooms)}", "-m", "pytest", "-q", *tests]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(data)}, check=True)


def read(data: Path) -> dict[str, Any]:
    """What coverage found, by file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(file)]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(data)}, check=True)
        return json.loads(file.read_text())["files"]


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--data", type=click.Path(exists=True, path_type=Path), help="A data file of coverage.  [default: the tests are run]"
)
@click.option("--rooms", default=",".join(ROOMS), show_default=True, help="Folders.")
def main(file: Path, data: Path | None, rooms: str) -> None:
    """Writes the result file."""
    with tempfile.TemporaryDirectory() as folder:
        if data is None:
            data = Path(folder) / "data"
            measure(data, tuple(rooms.split(",")))
        found = read(data)
    totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    left = []
    for name, each in sorted(found.items()):
        room = next(room for room in rooms.split(",") if name.startswith(f"{room}/"))
        summary = each["summary"]
        for key in ("num_statements", "num_branches", "covered_lines", "covered_branches"):
            totals[room][key] += summary[key]
        missing = [str(line) for line in each["missing_lines"]]
        missing += [f"{start} to {end}" for start, end in each["missing_branches"] if str(start) not in missing]
        totals[room]["missing"] += len(missing)
        if missing:
            left.append({"file": name, "lines": ", ".join(missing), "why": WHY.get(name, UNSAID)})
    entries = [
        {
            "folder": room,
            "statements": total["num_statements"],
            "branches": total["num_branches"],
            "percent": 100
            * (total["covered_lines"] + total["covered_branches"])
            / (total["num_statements"] + total["num_branches"]),
            "missing": total["missing"],
        }
        for room, total in totals.items()
    ]
    document = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "benchmarks/branches.py",
        "environment": environment("cpu"),
        "rooms": entries,
        "left": left,
    }
    jsonl.write(file, document, ["rooms", "left"])


if __name__ == "__main__":
    main()

"""Fault injection: each call of each place at which the tester meets the system fails once, in a run of 20 small cases.

python benchmarks/faults.py benchmarks/results/faults.jsonl       (`make faults`, minutes)

Exit status 1 where a run ended as it must not: tests/faults/injection.py says how it must.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent.parent))

from difftest.report import jsonl
from difftest.run.environment import environment
from tests.faults.injection import CANDIDATES, CASES, PLACES, every, run

SCHEMA = "numba-kernels/faults/1"


@click.command(help=__doc__)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--most", type=int, metavar="N", help="Calls of a place that fail.  [default: all]")
def main(file: Path, most: int | None) -> None:
    """Writes the result file."""
    found, began = [], time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        usual = {candidate: run(folder / candidate, candidate) for candidate in CANDIDATES}
        for place in PLACES:
            for candidate in place.of:
                statuses: Counter[str] = Counter()
                wrong, calls, errors = [], 0, set()
                (folder / "runs" / candidate).mkdir(parents=True, exist_ok=True)
                for number, error, ended, faults in every(folder / "runs" / candidate, place, candidate, usual[candidate], most):
                    statuses[str(ended.status)] += 1
                    calls, errors = max(calls, number), errors | {error}
                    wrong += [f"call {number}, {error}: {fault}" for fault in faults]
                entry = {"place": place.name, "candidate": candidate, "calls": calls, "errors": sorted(errors)}
                entry |= {"runs": statuses.total(), "statuses": dict(sorted(statuses.items())), "wrong": wrong}
                click.echo(entry)
                found.append(entry)
    document = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "benchmarks/faults.py",
        "environment": environment("cpu"),
        "cases": CASES,
        "seconds": round(time.monotonic() - began),
        "places": found,
    }
    jsonl.write(file, document, ["places"])
    sys.exit(int(any(entry["wrong"] for entry in found)))


if __name__ == "__main__":
    main()

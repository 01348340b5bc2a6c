"""Blocks on reliability: faults injected, lines and branches covered, what compute-sanitizer says, Numba's own tests."""

from __future__ import annotations

from pathlib import Path

from difftest.pages import sources
from difftest.pages.sources import COVERAGE, FAULTS, OWN_TESTS, RESULTS
from difftest.report.table import Table, markdown
from difftest.wording import counted

SANITIZERS = RESULTS / "sanitizers-h200.log"


def faults(page: Path) -> str:
    """A row for each place at which calls failed, and how the runs ended."""
    document = sources.latest(FAULTS)
    if not document:
        return sources.not_yet(FAULTS)
    places = document["places"]
    heads = ("what fails", "candidate", "calls", "errors", "runs", "exit statuses", "wrong")
    rows = tuple(
        (
            entry["place"],
            entry["candidate"],
            f"{entry['calls']}",
            ", ".join(entry["errors"]),
            f"{entry['runs']}",
            ", ".join(f"{status}: {count}" for status, count in entry["statuses"].items()),
            f"{len(entry['wrong'])}",
        )
        for entry in places
    )
    runs, wrong = sum(entry["runs"] for entry in places), sum(len(entry["wrong"]) for entry in places)
    said = f"{counted(runs, 'run')} of {document['cases']} cases, each with one failure; {wrong} ended as they must not "
    return f"{said}({document['date'][:10]}).\n\n{markdown(Table('', heads, rows, names=len(heads)))}"


def coverage(page: Path) -> str:
    """Lines and branches of the rooms that a verdict rests on, and each line that no test reaches with its reason."""
    document = sources.latest(COVERAGE)
    if not document:
        return sources.not_yet(COVERAGE)
    heads = ("folder", "statements", "branches", "covered", "lines and branches left, listed below")
    rows = tuple(
        (
            f"`{entry['folder']}/`",
            f"{entry['statements']:,}",
            f"{entry['branches']:,}",
            f"{entry['percent']:.2f} %",
            f"{entry['missing']}",
        )
        for entry in document["rooms"]
    )
    parts = [
        f"Measured {document['date'][:10]} on a machine without a GPU.\n",
        markdown(Table("", heads, rows, names=len(heads))),
    ]
    left = [f"- `{entry['file']}`, {entry['lines']}: {entry['why']}" for entry in document["left"]]
    return "\n".join([*parts, *left, *([""] if left else [])])


def sanitizers(page: Path) -> str:
    """What each tool said, in a line of its own."""
    if not SANITIZERS.is_file():
        return "Not measured yet: `benchmarks/sanitize.sh benchmarks/results/sanitizers-h200.log`, then `python cli.py docs`.\n"
    said = SANITIZERS.read_text(encoding="utf-8").splitlines()
    tools = ("memcheck: ", "racecheck: ", "initcheck: ", "synccheck: ", "FAILED")
    head = next((line.removeprefix("# ") for line in said if line.startswith("# ")), "")
    return "\n".join([f"{head}:\n", *(f"- {line}" for line in said if line.startswith(tools)), ""])


def own_tests(page: Path) -> str:
    """How many of Numba-CUDA's own tests pass on the emulator, and each that does not with its reason."""
    document = sources.latest(OWN_TESTS)
    if not document:
        return sources.not_yet(OWN_TESTS)
    total, passed = (sum(row[key] for row in document["modules"]) for key in ("tests", "passed"))
    where = document["environment"]
    said = (
        f"numba-cuda {where['numba-cuda']}, {document['date'][:10]}: of {total} tests in {len(document['modules'])} modules "
        f"that launch a kernel and pass under Numba's simulator, {passed} pass ({100 * passed / total:.1f} %); "
        f"{counted(len(document['skipped']), 'other')} skip themselves where there is no simulator. The rest:\n"
    )
    reasons: dict[str, list[str]] = {}
    for row in document["failed"]:
        reasons.setdefault(row["why"], []).append(f"`{row['test'].rpartition('.')[2]}`")
    return "\n".join([said, *(f"- {', '.join(tests)}: {why}" for why, tests in reasons.items()), ""])

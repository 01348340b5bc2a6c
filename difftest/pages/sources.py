"""Where pages and result files lie, and the latest result of a kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from difftest.bench import results
from difftest.errors import LackingError
from difftest.report import jsonl

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PLOTS = ROOT / "docs" / "plots"

BENCH, LADDER, CONTRACTS, FIRST_CALL, PROFILE, TUNING, EMULATOR = (
    f"numba-kernels/{name}" for name in ("bench", "ladder", "contracts", "first-call", "profile", "tuning", "emulator-speed")
)
FLOOR = "numba-kernels/floor"
CHAIN = "numba-kernels/chain"
MUTANTS = "numba-kernels/mutants"
ORDER = "numba-kernels/order"
FAULTS = "numba-kernels/faults"
COVERAGE = "numba-kernels/coverage"
EXHAUSTIVE = "numba-kernels/exhaustive"
OWN_TESTS = "numba-kernels/numba-own-tests"
MATRIX = RESULTS / "matrix-h200.jsonl"

# What measures a kind of result, for the block of a page that has none yet.
COMMANDS = {
    BENCH: "python cli.py bench --json benchmarks/results/bench-h200.jsonl",
    LADDER: "python cli.py bench --ladder --json benchmarks/results/ladder-h200.jsonl",
    CONTRACTS: "python benchmarks/contracts.py benchmarks/results/contracts-h200.jsonl",
    FIRST_CALL: "python benchmarks/first_call.py benchmarks/results/first-call-h200.jsonl",
    TUNING: "python benchmarks/tune.py benchmarks/results/tuning-h200.jsonl",
    FLOOR: "python benchmarks/floor.py benchmarks/results/floor-h200.jsonl",
    CHAIN: "python benchmarks/chain.py benchmarks/results/chain-h200.jsonl",
    PROFILE: "ncu, by hand",
    MUTANTS: "python cli.py mutants --corpus field --json benchmarks/results/mutants-field.jsonl",
    ORDER: "python benchmarks/order.py benchmarks/results/order-h200.jsonl",
    EXHAUSTIVE: "python cli.py exhaustive --contract all --plants 20 --json benchmarks/results/exhaustive-gated-h200.jsonl",
    FAULTS: "python benchmarks/faults.py benchmarks/results/faults.jsonl",
    COVERAGE: "python benchmarks/branches.py benchmarks/results/coverage.jsonl",
    OWN_TESTS: "python benchmarks/numba_own_tests.py --json benchmarks/results/numba-own-tests.jsonl",
    EMULATOR: "python benchmarks/emulator_speed.py --json benchmarks/results/emulator-speed.jsonl",
}


def documents(kind: str) -> list[dict[str, Any]]:
    """The result files of a kind, whatever their version, the latest last."""
    found = []
    for file in sorted(RESULTS.glob(f"*{jsonl.SUFFIX}")):
        document = jsonl.loads(file.read_text(encoding="utf-8"))
        if document["schema"].rpartition("/")[0] == kind:
            found.append(document)
    return sorted(found, key=lambda document: document["date"])


def latest(kind: str) -> dict[str, Any] | None:
    """The latest result file of a kind."""
    return next(reversed(documents(kind)), None)


def benchmark() -> dict[str, Any] | None:
    """The benchmark's result files put together, the later one's point where two hold it."""
    found = documents(BENCH)
    return results.merged(found) if found else None


def not_yet(kind: str) -> str:
    """What a block says that has nothing to show."""
    return f"Not measured yet: `{COMMANDS[kind]}`, then `python cli.py docs`.\n"


def need_pages() -> None:
    """LackingError where the package is installed without the repository's pages."""
    if not (ROOT / "README.md").is_file() or not (ROOT / "docs").is_dir():
        raise LackingError(f"docs: {ROOT} has no README.md and docs/; run it in a clone of the repository")

"""Numba-CUDA's own tests on the emulator: of those that launch a kernel and pass under Numba's simulator, which pass here.

    python benchmarks/numba_own_tests.py [--modules test_sync,test_forall] [--check fast|full] [--json FILE]

The tests are those that the numba-cuda wheel ships. Each module runs twice, in processes of its own: under the simulator
(``NUMBA_ENABLE_CUDASIM=1``), where launches are counted, and inside ``emulating()``.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = "numba-kernels/numba-own-tests/1"
FOLDERS = ("cudapy", "cudasim", "doc_examples")
LIMIT = 900  # seconds a module
PREFIX = "numba.cuda.tests."
REASON = 200  # characters of an error's first line that are kept
WHY = {  # why a test does not pass, by a part of its name
    "test_exception.TestException.test_exception": "asks that an index out of bounds goes unnoticed; the emulator reports it",
    "test_zero_division_error_in_debug": "debug mode's division by zero raises nothing here",
    "test_explicit_signatures_device": "a device function's signatures are not held against its calls",
    "test_explicit_signatures": "counts the dispatcher's compiled forms, which here are made at the first launch",
    "test_round_to_f4_halfway": "round(float32, digits) is computed in float32, as Numba does it on a CPU",
    "test_issue5219": "the device function is typed by Numba for a CPU, which does not unify what numba-cuda prunes",
}


class Outcomes(unittest.TestResult):
    """Prints, for each test, what became of it and how many kernels it launched, when it ends: a test that takes the process
    with it leaves the others' lines."""

    def __init__(self, launches: Callable[[], int]) -> None:
        super().__init__()
        self.launches, self.before, self.outcome, self.reason = launches, 0, "passed", ""

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.before, self.outcome, self.reason = self.launches(), "passed", ""

    def stopTest(self, test: Any) -> None:
        super().stopTest(test)
        row = {"test": test.id(), "outcome": self.outcome, "reason": self.reason, "launches": self.launches() - self.before}
        print(json.dumps(row), file=sys.__stdout__, flush=True)

    def addError(self, test: Any, err: Any) -> None:
        self.outcome, self.reason = "failed", f"{err[0].__name__}: {err[1]}".strip().splitlines()[0][:REASON]

    addFailure = addError

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.addError(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.outcome, self.reason = "skipped", reason

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.outcome = "skipped"


def simulate(name: str) -> None:
    """Run a module's tests under the simulator; call in a process of its own."""
    from numba.cuda.simulator.kernel import FakeCUDAKernel

    launches, call = 0, FakeCUDAKernel.__call__

    @functools.wraps(call)
    def counted(kernel: Any, *args: Any) -> Any:
        nonlocal launches
        launches += 1
        return call(kernel, *args)

    FakeCUDAKernel.__call__ = counted
    unittest.defaultTestLoader.loadTestsFromName(name).run(Outcomes(lambda: launches))


def emulate(name: str, check: str) -> None:
    """Run a module's tests on the emulator; call in a process of its own."""
    from numba_kernels.emulator import emulating

    with emulating(check=check) as run:
        unittest.defaultTestLoader.loadTestsFromName(name).run(Outcomes(lambda: run.launches))


def outcomes_of(name: str, how: str) -> dict[str, Any]:
    """Each test's outcome, from a process of its own: under "simulator", or in a check of the emulator."""
    environment = {**os.environ, **({"NUMBA_ENABLE_CUDASIM": "1"} if how == "simulator" else {})}
    command = [sys.executable, __file__, "--run", name, how]
    try:
        lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT).stdout
    except subprocess.TimeoutExpired as over:
        lines = (over.stdout or b"").decode()
    rows = [json.loads(line) for line in lines.splitlines() if line.startswith('{"test"')]
    return {row["test"]: row for row in rows}


def modules(wanted: str) -> Iterator[str]:
    """The names of the test modules, of all or of those whose last part is ``wanted``."""
    import numba.cuda

    tests = Path(numba.cuda.__file__).parent / "tests"
    for folder in FOLDERS:
        for file in sorted((tests / folder).glob("test_*.py")):
            if not wanted or file.stem in wanted.split(","):
                yield f"{PREFIX}{folder}.{file.stem}"


def compared(name: str, check: str) -> list[dict[str, Any]]:
    """The emulator's outcome of each test of a module that counts: it launches a kernel and passes under the simulator."""
    counting = [t for t, row in outcomes_of(name, "simulator").items() if row["outcome"] == "passed" and row["launches"]]
    found = outcomes_of(name, check) if counting else {}
    missing = {"outcome": "failed", "reason": "the process broke off", "launches": 0}
    return [{**missing, **found.get(test, {}), "test": test.removeprefix(PREFIX)} for test in counting]


def why(test: dict[str, Any]) -> str:
    """The reason for which a test does not pass: its error, where nothing more is known."""
    return next((reason for name, reason in WHY.items() if name in test["test"]), test["reason"])


def summed_up(options: argparse.Namespace) -> dict[str, Any]:
    """The document: each module's numbers, each test that does not pass or is for the simulator alone."""
    found: dict[str, Any] = {"schema": SCHEMA, "check": options.check, "modules": [], "failed": [], "skipped": []}
    for name in modules(options.modules):
        tests = compared(name, options.check)
        of = {how: [t for t in tests if t["outcome"] == how] for how in ("passed", "failed", "skipped")}
        found["failed"] += [{"test": t["test"], "why": why(t)} for t in of["failed"]]
        found["skipped"] += [{"test": t["test"], "why": t["reason"]} for t in of["skipped"]]
        if len(tests) > len(of["skipped"]):
            row = {"module": name.removeprefix(PREFIX), "passed": len(of["passed"]), "tests": len(tests) - len(of["skipped"])}
            found["modules"].append(row)
            print(f"{row['module']}: {row['passed']} of {row['tests']}", flush=True)
    return found


def write(path: Path, document: dict[str, Any]) -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from difftest.report import jsonl
    from difftest.run.environment import environment

    moment = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"schema": SCHEMA, "date": moment, "command": " ".join(sys.argv), "environment": environment("cpu")}
    jsonl.write(path, {**head, **document}, ["modules", "failed", "skipped"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", default="", help="only these, by the last parts of their names, apart by commas")
    parser.add_argument("--check", default="fast", choices=("fast", "full"))
    parser.add_argument("--json", type=Path, help="result file; JSON Lines if it ends in .jsonl")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        name, how = options.run
        simulate(name) if how == "simulator" else emulate(name, how)
        return
    document = summed_up(options)
    for row in document["failed"]:
        print(f"{row['test']}: {row['why']}")
    total, passed = (sum(row[key] for row in document["modules"]) for key in ("tests", "passed"))
    print(f"{passed} of {total} tests pass, {100 * passed / max(total, 1):.1f} %")
    if options.json:
        write(options.json, document)


if __name__ == "__main__":
    main()

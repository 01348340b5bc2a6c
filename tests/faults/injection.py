"""A run of 20 small cases in which the k-th call of one function of the tester's own fails, and what such a run must come to.

Every function at which the tester meets the system (files, memory, launches, processes) is a `Place`. One run a call: as many
runs as the function is called, until none of its calls is left to fail.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from click.testing import CliRunner

from difftest import cli
from difftest.run.nursery import Gone

BROKEN = Path(__file__).parent.parent / "difftest" / "broken"
# The kernels in the tester's process; a file's function in a process of its own, right and wrong.
CANDIDATES = {"numba": "numba", "right": f"{BROKEN / 'plain'}.py:rmsnorm", "wrong": f"{BROKEN / 'drops_one_element'}.py:rmsnorm"}
REGIMES = "normal,some_zeros,zeros,subnormal,magnitudes,small_mean_square,eps_dominates,outliers,square_overflow,range_limit"
CASES = 20
FILES = {"--json": "run.json", "--html": "run.html", "--junit": "run.xml", "--plots": "plots", "--failures": "failures"}
DIFFERS, USAGE, LACKING, FAULT = 1, 2, 3, 70


@dataclass(frozen=True, slots=True)
class Place:
    """A function, by module and name, and the errors that it fails with, one at a time.

    `candidate`: a failure there is one of the candidate's call, and so a difference of that case alone. `before`: it is called
    before a run too, where a failure is bad usage. `mended`: the run may go on as if nothing had been. `of`: the candidates that
    come to it. `workers`: of the run.
    """

    name: str
    function: str
    errors: tuple[Exception, ...]
    candidate: bool = False
    before: bool = False
    mended: bool = False
    of: tuple[str, ...] = ("numba", "wrong")
    workers: int = 0


def _errors(*numbers: int) -> tuple[Exception, ...]:
    return tuple(OSError(number, os.strerror(number)) for number in numbers)


OWN, ISOLATED = ("numba",), ("right", "wrong")
ROOM, PROCESSES = (errno.ENOSPC, errno.EIO), (errno.EAGAIN, errno.ENOMEM, errno.EMFILE)
PLACES = (
    Place("create a file", "difftest.system:create", _errors(*ROOM, errno.EMFILE, errno.EACCES)),
    Place("write", "difftest.system:write", _errors(*ROOM, errno.EDQUOT)),
    Place("fsync", "difftest.system:sync", _errors(*ROOM)),
    Place("rename", "difftest.system:rename", _errors(*ROOM, errno.EPERM)),
    Place("make a folder", "difftest.system:make_folder", _errors(errno.ENOSPC, errno.EROFS), before=True),
    Place("look at a path", "difftest.system:state", _errors(errno.EIO, errno.EACCES), before=True),
    Place("append to the journal", "difftest.run.lines:os.write", _errors(*ROOM), mended=True),
    Place("allocate a buffer", "difftest.run.buffers:allocate", (MemoryError(),), of=OWN),
    Place(
        "launch", "numba_kernels.emulator.launch:EmulatedKernel.launch", (MemoryError(), *_errors(errno.EIO)), True, of=("numba",)
    ),
    Place("start a worker", "difftest.run.pool:_Pool._start", _errors(*PROCESSES), of=OWN, workers=1),
    Place("share memory", "difftest.run.memory:_nameless", _errors(errno.ENOMEM, errno.EMFILE), of=ISOLATED),
    Place("start a process", "difftest.run.nursery:Nursery.start", _errors(*PROCESSES), of=ISOLATED),
    Place("lose the nursery", "difftest.run.nursery:Nursery.start", (Gone("made up"),), mended=True, of=ISOLATED),
    Place("hand a call over", "difftest.run.isolation:send_fds", _errors(errno.ENOBUFS), of=("right",)),
    Place("ask the nursery", "difftest.run.nursery:send_fds", _errors(errno.ENOBUFS), mended=True, of=ISOLATED),
)


@dataclass(slots=True)
class Ended:
    """How a run ended: its status, its last words, what is in its files."""

    status: int
    error: str
    cases: dict[str, str]  # a case in words -> its verdict, and its reasons where it differs
    verdict: str | None
    left: list[str] = field(default_factory=list)  # files that are not whole


@contextmanager
def fault(place: Place, number: int, error: Exception) -> Iterator[list[int]]:
    """The `number`-th call of the place's function raises; gives the list of calls made."""
    module, _, path = place.function.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for each in parents:
        owner = getattr(owner, each)
    real, calls = getattr(owner, name), []

    def failing(*args: Any, **options: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == number:
            raise error
        return real(*args, **options)

    setattr(owner, name, failing)
    try:
        yield calls
    finally:
        setattr(owner, name, real)


def run(folder: Path, candidate: str, workers: int = 0) -> Ended:
    """One run in an empty folder, with every file that a run can leave."""
    folder.mkdir()
    words = ["difftest", "--candidate", CANDIDATES[candidate], "--ops", "rmsnorm", "--dtypes", "fp32", "--widths", "5,64"]
    words += ["--rows", "2", "--regimes", REGIMES, "--cases", "0", "--strength", "0", "--device", "cpu"]
    words += ["--workers", str(workers)]
    words += [word for option, name in FILES.items() for word in (option, str(folder / name))]
    result = CliRunner().invoke(cli.main, words)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return ended(folder, result.exit_code, result.stderr)


def ended(folder: Path, status: int, error: str) -> Ended:
    """What a run left in its folder."""
    found = Ended(status, error, {}, None)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            text = file.read_text(encoding="utf-8")
            if file.name.startswith(".") or not text:
                raise ValueError("a part of a file")
            if file.suffix == ".json":
                document = json.loads(text)
                if file.name == FILES["--json"]:
                    found.verdict = document["verdict"]
                    found.cases = {_words(case): _said(case) for case in document["cases"]}
            elif file.suffix in (".xml", ".svg"):
                ElementTree.fromstring(text.partition("?>\n")[2] or text)
            elif not text.rstrip().endswith("</html>"):
                raise ValueError("a part of a page")
        except (ValueError, ElementTree.ParseError) as wrong:
            found.left.append(f"{file.name}: {wrong}")
    return found


def _words(case: dict[str, Any]) -> str:
    return f"{case['lead']} x {case['width']} {case['regime']}"


def _said(case: dict[str, Any]) -> str:
    return "; ".join([case["verdict"], *case["reasons"]])


def wrong_with(place: Place, candidate: str, usual: Ended, found: Ended) -> list[str]:
    """What such a run must not come to: empty where it ended as it must."""
    lines = [line for line in found.error.strip().splitlines() if not line.startswith("about ")]
    faults = [f"not whole: {name}" for name in found.left]
    if len(lines) > 1 or "Traceback" in found.error:
        faults.append(f"{len(lines)} lines of error")
    changed = {name for name, said in found.cases.items() if usual.cases[name] != said}
    if place.candidate:
        if len(changed) > 1 or any("raised" not in found.cases[name] for name in changed):
            faults.append(f"other results in {sorted(changed)}")
        if found.status != DIFFERS:
            faults.append(f"status {found.status} after a call that failed")
        return faults
    if changed:
        faults.append(f"other results in {sorted(changed)}")
    if found.verdict not in (None, usual.verdict) and not (found.verdict == "no evidence" and found.status in (LACKING, FAULT)):
        faults.append(f"verdict {found.verdict}")
    allowed = {usual.status, LACKING} if candidate == "wrong" or place.mended else {LACKING}
    if place.before:
        allowed.add(USAGE)
    if found.status not in allowed:
        faults.append(f"status {found.status}")
    if found.status == LACKING and len(lines) != 1:
        faults.append("no line that says why")
    return faults


def every(
    folder: Path, place: Place, candidate: str, usual: Ended, most: int | None = None
) -> Iterator[tuple[int, str, Ended, list[str]]]:
    """Each call of a place with each of its errors, until no call is left: its number, error, the run's end, what is wrong."""
    for error in place.errors:
        number = 0
        while most is None or number < most:
            number += 1
            with fault(place, number, error) as calls:
                found = run(folder / f"{place.name}-{number}-{error}".replace("/", "-"), candidate, place.workers)
            if len(calls) < number:
                break
            name = errno.errorcode.get(getattr(error, "errno", 0), type(error).__name__)
            yield number, name, found, wrong_with(place, candidate, usual, found)

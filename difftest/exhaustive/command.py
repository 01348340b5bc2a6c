"""The command `exhaustive`: options in, an exit status out."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from difftest import errors, options
from difftest.errors import LackingError, UsageError, one_of
from difftest.exhaustive import report, run
from difftest.exhaustive.domain import LEAST_OF_AXIS, PAIRS, ROWS_ON_CPU, axis_of
from difftest.exhaustive.run import INTERRUPTED, Request, Task
from difftest.exhaustive.sweep import has_two_operands
from difftest.providers.resolve import is_file, operators_of, resolve
from difftest.report import files, jsonl, terminal
from difftest.run import conditions
from difftest.run.environment import environment, one_line
from difftest.wording import in_a_line
from reference.contracts import corners
from reference.formats import FORMATS
from reference.operators import OPERATORS
from reference.operators.contract import Contract
from reference.providers import Provider

DTYPES = tuple(name for name, each in FORMATS.items() if each.itemsize == 2)
TWO_OPERANDS = tuple(name for name, op in OPERATORS.items() if has_two_operands(op))
ALL_CODES = "all"
LEAST_SHARE = LEAST_OF_AXIS**2 / PAIRS


def exhaustive(
    *,
    ops: str,
    dtypes: str,
    candidate: str,
    contract: str,
    device: str,
    share: float | None,
    seed: int,
    plants: int,
    time_budget: float | None,
    resume: Path | None,
    json: Path | None,
    share_on_cpu: float,
) -> int:
    """Judges the pairs, reports, and keeps what was found. Returns the exit status."""
    where = torch.device(options.device(device))
    share = (1.0 if where.type == "cuda" else share_on_cpu) if share is None else share
    if not 0.0 < share <= 1.0:
        raise UsageError(f"--share: {share} is not allowed; allowed: numbers above 0, to 1")
    options.seed(seed)
    options.at_least("--plants", plants, 0)
    options.at_least("--time-budget", time_budget or 0.0, 0.0)
    for option, path in (("--json", json), ("--resume", resume)):
        if path:
            files.check_writable(option, path)
    files.check_apart({"--json": json, "--resume": resume}, {})
    names = options.names("--dtypes", dtypes, DTYPES)
    candidates = options.words("--candidate", candidate)
    providers = [resolve(name) for name in candidates]
    tasks = [
        task
        for name, provider in zip(candidates, providers, strict=True)
        for task in _tasks(name, provider, _operators(name, ops, where), names, contract)
    ]
    if not tasks:
        raise UsageError(f"--contract: {contract!r} is none of the operators asked for; allowed: all, or one of their codes")
    request = Request(tasks, where, share, seed, plants, time_budget)
    about = {**_head(where, providers), "request": _identity(request)}
    earlier = _earlier(resume, about["request"]) if resume else None
    screen = terminal.console()
    screen.print(f"{', '.join(candidates)}: {report.what_is_judged(share, names)}", markup=False, soft_wrap=True)
    screen.print(one_line(environment(str(where))), style="dim", soft_wrap=True)
    saver = _Saver(resume)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what is worked on is small beside what threads that wait for each other cost
    try:
        with report.progress(len(tasks) * axis_of(share) ** 2 * (1 + plants)) as on_turn:
            document = run.run(request, about, earlier, saver, on_turn)
    finally:
        torch.set_num_threads(threads)
    report.show(screen, document)
    files.write_each((json, lambda path: jsonl.write(path, document, run.PARTS)))
    if saver.failed:
        raise saver.failed
    return _status(document)


def _status(document: Mapping[str, Any]) -> int:
    """0, 1 with a difference, 2 and 3 where nothing was judged, 70 where a planted output was missed, 130."""
    records = document["tasks"]
    if any(map(run.differs, records)):
        return errors.DIFFERS
    if any(map(run.missed, records)):
        return errors.FAULT
    if document["stopped"] == INTERRUPTED:
        return errors.INTERRUPTED
    if any(map(run.judged, records)):
        return errors.CONFORMS
    return errors.BAD_USAGE if document["stopped"] else errors.LACKING


def _operators(candidate: str, ops: str, where: torch.device) -> list[str]:
    """The operators asked for; of a file's function, what its name says. Rows of one element are slow on the emulator."""
    if ops:
        return options.names("--ops", ops, TWO_OPERANDS)
    if not is_file(candidate):
        return [name for name in TWO_OPERANDS if where.type == "cuda" or OPERATORS[name].activation]
    found = operators_of(candidate)
    if found[0] not in TWO_OPERANDS:
        raise UsageError(f"--ops: {found[0]} has one operand; allowed: {', '.join(TWO_OPERANDS)}")
    return found


def _tasks(name: str, provider: Provider, ops: Sequence[str], dtypes: Sequence[str], spelling: str) -> list[Task]:
    return [
        Task(name, provider, op, dtype, contract)
        for op in ops
        for dtype in dtypes
        for contract in _contracts(provider, op, spelling)
    ]


def _contracts(provider: Provider, op: str, spelling: str) -> list[Contract]:
    """What the provider claims for the operator, or its contracts among those named."""
    every = corners(op)
    if not spelling:
        claimed = provider.claims(op)
        return [each for each in every if claimed and each.code == claimed.code] or [every[0]]
    asked = [word.upper() for word in options.words("--contract", spelling)]
    known = {code for each in OPERATORS.values() for code in each.codes}
    for word in asked:
        if word not in known and word.lower() != ALL_CODES:
            raise one_of("--contract", word, (ALL_CODES, *sorted(known)))
    return [each for each in every if each.code in asked or ALL_CODES.upper() in asked]


def _head(where: torch.device, providers: Sequence[Provider]) -> dict[str, Any]:
    command = terminal.command_line(*sys.argv[1:])
    if where.type == "cuda":
        return conditions.head(run.SCHEMA, command, where, providers)
    return {
        "schema": run.SCHEMA,
        "date": conditions.now(),
        "command": command,
        "environment": conditions.versions(str(where), providers),
        "rows_of_a_slice": ROWS_ON_CPU,
    }


def _identity(request: Request) -> dict[str, Any]:
    """What a run that goes on from another's state must have in common with it."""
    return {
        "device": request.device.type,
        "patterns_of_an_operand": axis_of(request.share),
        "seed": request.seed,
        "plants": request.plants,
        "tasks": [list(run.key_of(task.head())) for task in request.tasks],
    }


def _earlier(path: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state in the file; None where there is none yet. UsageError for another run's."""
    if not path.exists():
        return None
    document = jsonl.read("--resume", path, run.SCHEMA, "the state of an exhaustive run")
    try:
        run.check_state(document)
        report.show(Console(file=StringIO()), document)  # what is reported of it has its place too
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"--resume: {path} is no whole state of an exhaustive run: {in_a_line(error)}") from None
    found = document["request"]
    for name, value in identity.items():
        if found.get(name) != value:
            what = name.replace("_", " ")
            raise UsageError(f"--resume: {path} is of another run: its {what} {found.get(name)!r}, not {value!r}")
    return document


class _Saver:
    """Writes the state, if it is to be kept. `failed`: why it last could not, which is no reason to stop."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.failed: LackingError | None = None

    def __call__(self, document: Mapping[str, Any]) -> None:
        self.failed = None
        try:
            files.write_each((self.path, lambda path: jsonl.write(path, document, run.PARTS)))
        except LackingError as error:
            self.failed = error

"""The command `bench`: options in, an exit status out."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.markup import escape

from difftest import errors, interrupts, options
from difftest.bench import ladder, plots, results, run, tables
from difftest.bench.shapes import OURS, PEERS, cases, parse
from difftest.bench.timer import GraphTimer
from difftest.cases.case import Case
from difftest.errors import LackingError, UsageError
from difftest.providers.resolve import resolve
from difftest.report import files, jsonl, table, terminal
from difftest.run import conditions
from difftest.wording import counted
from reference.formats import FORMATS
from reference.operators import OPERATORS


def bench(
    *,
    ops: str,
    shapes: str,
    dtypes: str,
    peers: str,
    device: str,
    time_budget: float | None,
    json: Path | None,
    plots: Path | None,
    summary: Sequence[Path],
    markdown: bool,
    ladder: bool,
) -> int:
    """Measures and reports, or reports what a result file holds. Returns the exit status.

    0, or 1 when our own result fails its check; 2 and 3 as everywhere.
    """
    if ladder:
        _nothing_beside("--ladder", ops=ops, shapes=shapes, dtypes=dtypes, peers=peers, plots=plots, summary=summary)
        return _ladder(_device(device), json, time_budget, markdown)
    if summary:
        _plots_possible(plots)
        try:
            return _report(results.merged([results.load(file) for file in summary]), plots, markdown)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"--summary: a file lacks part of a result: {type(error).__name__}: {error}") from None
    asked = (
        options.names("--ops", ops, OPERATORS) if ops else (),
        options.names("--dtypes", dtypes, FORMATS) if dtypes else (),
        parse(shapes) if shapes else (),
    )
    names = options.words("--peers", peers) if peers else list(PEERS)
    providers = [resolve(name, "--peers") for name in dict.fromkeys((OURS, *names))]
    options.at_least("--time-budget", time_budget or 0.0, 0.0)
    if json:
        files.check_writable("--json", json)
    _plots_possible(plots)
    where = _device(device)
    points = cases(*asked, device=str(where))
    reason = providers[0].check(points[0])
    if reason:
        raise LackingError(f"{OURS} can't run on {where}: {reason}")
    saver = _Saver(json, run.PARTS)
    request = run.Request(points, providers, where, named=bool(peers), time_budget=time_budget)
    document = _measured(request, names, saver, _screen(markdown))
    return _end(document, saver, _report(document, plots, markdown))


def _measured(request: run.Request, peers: Sequence[str], saver: _Saver, screen: Console) -> dict[str, Any]:
    """The document of the points measured, each said and saved as it ends."""
    points, providers, where = request.cases, request.providers, request.device
    screen.print(
        f"{counted(len(points), 'point')}, {counted(len(providers), 'provider')} on {torch.cuda.get_device_name(where)}",
        markup=False,
    )

    def on_point(case: Case, result: Mapping[str, Any]) -> None:
        screen.print(_line(case, result), markup=False, soft_wrap=True)

    about = {**_head(run.SCHEMA, where, providers), "peers": peers}
    with torch.cuda.device(where):
        document = run.run(request, GraphTimer(where), about, saver, on_point)
    document["clocks_after"] = conditions.clocks(where) if _alive(where) else {}
    saver(document)
    return document


def _ladder(where: torch.device, json: Path | None, time_budget: float | None, markdown: bool) -> int:
    """Measures every step of the ladder at its shapes."""
    if json:
        files.check_writable("--json", json)
    steps = ladder.steps()
    screen = _screen(markdown)
    saver = _Saver(json, ladder.PARTS)
    document: dict[str, Any] = {**_head(ladder.SCHEMA, where, ()), "complete": False, "stopped": None, "points": []}
    start = time.monotonic()
    try:
        with interrupts.on_sigterm_too(), torch.cuda.device(where), torch.no_grad():
            clock = GraphTimer(where)
            for case in ladder.cases(str(where)):
                if time_budget is not None and time.monotonic() - start >= time_budget:
                    document["stopped"] = "out of time"
                    break
                document["points"].append(ladder.point(case, steps, clock, where))
                saver(document)
                screen.print(_line(case, document["points"][-1]), markup=False, soft_wrap=True)
                clock.release()
            else:
                document["complete"] = True
    except KeyboardInterrupt:
        document["stopped"] = "interrupted"
    saver(document)
    if markdown:
        click.echo(table.markdown(ladder.table(document)), nl=False)
    else:
        screen.print(table.terminal(ladder.table(document)))
    wrong = list(ladder.remarks(document, "wrong"))
    for said in wrong:
        screen.print(f"[bold red]wrong[/] {escape(said)}", soft_wrap=True)
    for said in ladder.remarks(document, "skipped"):
        screen.print(f"[yellow]skipped[/] {escape(said)}", soft_wrap=True)
    if document["stopped"]:
        screen.print(f"[yellow]stopped[/]: {escape(document['stopped'])}", soft_wrap=True)
    return _end(document, saver, errors.DIFFERS if wrong else errors.CONFORMS)


def _report(document: dict[str, Any], folder: Path | None, markdown: bool) -> int:
    """Prints the tables, writes the plots."""
    if markdown:
        click.echo(tables.markdown(document), nl=False)
    else:
        tables.show(terminal.console(), document)
    files.write_each((folder, lambda path: plots.write(path, document)))
    wrong = results.summarise(document).wrong
    return errors.DIFFERS if any(name == OURS for name, _, _ in wrong) else errors.CONFORMS


def _end(document: Mapping[str, Any], saver: _Saver, status: int) -> int:
    """The exit status of a measurement that was reported with `status`. LackingError where its file could not be written."""
    if saver.failed:
        raise saver.failed
    return errors.INTERRUPTED if document["stopped"] == "interrupted" and not status else status


def _head(schema: str, where: torch.device, providers: Sequence[Any]) -> dict[str, Any]:
    return conditions.head(schema, terminal.command_line(*sys.argv[1:]), where, providers)


def _screen(markdown: bool) -> Console:
    """Where what is not a table goes: beside the page, if standard output is one."""
    return Console(stderr=True) if markdown else terminal.console()


def _nothing_beside(option: str, **others: Any) -> None:
    """UsageError for an option that says what another one has settled."""
    for name, value in others.items():
        if value:
            raise UsageError(f"--{name}: {option} has operator, shapes and steps of its own, so it means nothing there")


def _device(text: str) -> torch.device:
    """The CUDA device; LackingError where there is none, UsageError for a CPU."""
    found = options.device(text)
    if found == "cpu":
        if text == "cpu":
            raise UsageError("--device: cpu is not allowed; allowed: auto, cuda, cuda:N: device time is measured on a GPU")
        raise LackingError(f"bench needs a CUDA device, and torch {torch.__version__} sees none")
    return torch.device(found)


def _plots_possible(folder: Path | None) -> None:
    if folder:
        files.need("--plots", "matplotlib")
        files.make_folder("--plots", folder)


class _Saver:
    """Writes the document, if it is to be written. `failed`: why it last could not, which is no reason to stop measuring."""

    def __init__(self, path: Path | None, parts: Sequence[str]) -> None:
        self.path, self.parts = path, parts
        self.failed: LackingError | None = None

    def __call__(self, document: Mapping[str, Any]) -> None:
        self.failed = None
        try:
            files.write_each((self.path, lambda path: jsonl.write(path, document, self.parts)))
        except LackingError as error:
            self.failed = error


def _alive(device: torch.device) -> bool:
    try:
        torch.cuda.synchronize(device)
    except Exception:  # a lost context
        return False
    return True


def _line(case: Case, result: Mapping[str, Any]) -> str:
    """One point in a line, the fastest first."""
    timed = sorted((row for row in result["results"] if "us" in row), key=lambda row: row["us"]["median"])
    shown = [f"{row['provider']} {row['us']['median']:.2f}{' (wrong)' if row['status'] == 'wrong' else ''}" for row in timed]
    seconds = f", {result['seconds']} s" if "seconds" in result else ""
    return f"{case}: {', '.join(shown) or 'none timed'} us; {result['calls']} calls a graph{seconds}"

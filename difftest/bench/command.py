"""The command `bench`: options in, an exit status out. Imports this package."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console

from difftest import errors, extras, jsonl, options, record, report
from difftest.bench import conditions, plan, plots, results, run, tables
from difftest.bench.plan import Point
from difftest.bench.timer import GraphTimer
from difftest.candidates import resolve
from difftest.dtypes import DTYPES
from difftest.errors import LackingError, UsageError
from difftest.wording import counted
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
) -> int:
    """Measures and reports, or reports what a result file holds. Returns the exit status.

    0, or 1 when our own result fails its check; 2 and 3 as everywhere.
    """
    if summary:
        _plots_possible(plots)
        try:
            return _report(results.merged([results.load(file) for file in summary]), plots, markdown)
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"--summary: a file lacks part of a result: {type(error).__name__}: {error}") from None
    points = plan.points(
        options.names("--ops", ops, OPERATORS) if ops else (),
        options.names("--dtypes", dtypes, DTYPES) if dtypes else (),
        plan.shapes(shapes) if shapes else (),
    )
    names = options.words("--peers", peers) if peers else list(plan.PEERS)
    providers = [resolve(name, "--peers") for name in dict.fromkeys((plan.OURS, *names))]
    options.at_least("--time-budget", time_budget or 0.0, 0.0)
    if json:
        record.check_writable("--json", json)
    _plots_possible(plots)
    where = _device(device)
    reason = providers[0].unavailable(where)
    if reason:
        raise LackingError(f"{plan.OURS} can't run on {where}: {reason}")
    screen = report.console() if not markdown else Console(stderr=True)
    screen.print(
        f"{counted(len(points), 'point')}, {counted(len(providers), 'provider')} on {torch.cuda.get_device_name(where)}",
        markup=False,
    )

    def on_point(point: Point, result: Mapping[str, Any]) -> None:
        screen.print(_line(point, result), markup=False, soft_wrap=True)

    about = {**conditions.head(run.SCHEMA, report.command_line(*sys.argv[1:]), where, providers), "peers": names}
    saver = _Saver(json)
    asked = run.Plan(points, providers, where, named=bool(peers), time_budget=time_budget)
    with torch.cuda.device(where):
        document = run.run(asked, GraphTimer(where), about, saver, on_point)
    document["clocks_after"] = conditions.clocks(where) if _alive(where) else {}
    saver(document)
    status = _report(document, plots, markdown)
    if saver.failed:
        raise saver.failed
    return errors.INTERRUPTED if document["stopped"] == "interrupted" and not status else status


def _report(document: dict[str, Any], folder: Path | None, markdown: bool) -> int:
    """Prints the tables, writes the plots."""
    if markdown:
        click.echo(tables.markdown(document), nl=False)
    else:
        tables.show(report.console(), document)
    record.write_each((folder, lambda path: plots.write(path, document)))
    wrong = results.summarise(document).wrong
    return errors.DIFFERS if any(name == plan.OURS for name, _, _ in wrong) else errors.CONFORMS


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
        extras.need("--plots", "matplotlib")
        extras.make_folder("--plots", folder)


class _Saver:
    """Writes the document, if it is to be written. `failed`: why it last could not, which is no reason to stop measuring."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.failed: LackingError | None = None

    def __call__(self, document: Mapping[str, Any]) -> None:
        self.failed = None
        try:
            record.write_each((self.path, lambda path: jsonl.write(path, document, run.PARTS)))
        except LackingError as error:
            self.failed = error


def _alive(device: torch.device) -> bool:
    try:
        torch.cuda.synchronize(device)
    except Exception:  # a lost context
        return False
    return True


def _line(point: Point, result: Mapping[str, Any]) -> str:
    """One point in a line, the fastest first."""
    timed = sorted((row for row in result["results"] if "us" in row), key=lambda row: row["us"]["median"])
    shown = [f"{row['provider']} {row['us']['median']:.2f}{' (wrong)' if row['status'] == 'wrong' else ''}" for row in timed]
    return f"{point}: {', '.join(shown) or 'nobody'} us; {result['calls']} calls a graph, {result['seconds']} s"

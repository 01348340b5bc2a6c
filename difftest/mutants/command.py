"""The command `mutants`: options in, the kill matrix and what others let through, an exit status out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from difftest import errors, options
from difftest.errors import UsageError, one_of
from difftest.mutants import file, run, tables
from difftest.mutants.corpora import CORPORA
from difftest.mutants.found import Found
from difftest.mutants.journal import Journal, about
from difftest.mutants.run import Asked
from difftest.report import terminal
from difftest.report.files import check_writable, write_each
from difftest.report.journals import ended, opened
from difftest.report.table import terminal as drawn
from difftest.run import pool
from difftest.run.environment import environment, one_line
from difftest.wording import counted
from reference.operators import OPERATORS


def mutants(
    *,
    corpus: str,
    ops: str,
    only: str,
    seeds: str,
    json: Path | None,
    time_budget: float | None,
    workers: int | None,
    on: str,
    journal: Path | None,
    resume: Path | None,
    defaults: Mapping[str, Any],
) -> int:
    """Runs the corpora asked for and reports who was found by what. Returns the exit status.

    0: every mutant that was run was found at every seed, and no honest entry was called wrong; else 1. `journal`, `resume`: the
    file that each kernel is kept in as it ends, and that of a run that was killed, to go on with. `defaults`: of the options of
    `difftest`, whose default run's cases these are.
    """
    options.workers(workers)
    options.cluster(on)
    options.at_least("--time-budget", time_budget or 0.0, 0.0)
    asked = Asked(
        _chosen(corpus, ops, only),
        [_seed(number) for number in options.whole_numbers("--seeds", seeds, 0, options.LARGEST_SEED)],
        defaults,
        min(8, pool.cores()) if workers is None else workers,
        time_budget,
        on=on,
    )
    if json:
        check_writable("--json", json)
    kept = opened(Journal, about(asked.seeds, defaults), journal, resume)
    screen = terminal.console()
    where = environment("cpu")
    screen.print(f"{counted(len(asked.entries), 'kernel')}, {counted(len(asked.seeds), 'seed')}", markup=False)
    screen.print(one_line(where), style="dim", soft_wrap=True)
    with _progress(len(asked.entries)) as on_entry:
        outcome = run.run(asked, on_entry, kept)
    result = file.document(asked, outcome, where, {"corpus": corpus, "ops": ops, "only": only, "seeds": seeds})
    _show(screen, result, len(asked.entries))
    write_each((json, lambda path: file.write(path, result)))
    if kept:
        kept.close()
        ended(screen, kept, whole=not outcome.left)
    return _status(result)


def _chosen(corpus: str, ops: str, only: str) -> list[tuple[str, str]]:
    """The entries asked for, by corpus and name."""
    named = list(CORPORA) if corpus == "all" else options.names("--corpus", corpus, [*CORPORA, "all"])
    wanted = options.names("--ops", ops, OPERATORS) if ops else list(OPERATORS)
    there = [(name, entry) for name in named for entry in CORPORA[name].entries()]
    if only:
        known = [entry.name for _, entry in there]
        for name in options.words("--only", only):
            if name not in known:
                raise one_of("--only", name, known, what=f"kernel of {', '.join(named)}")
        there = [(name, entry) for name, entry in there if entry.name in options.words("--only", only)]
    chosen = [(name, entry.name) for name, entry in there if not ops or set(entry.ops) & set(wanted)]
    if not chosen:
        raise UsageError(f"--ops: no kernel asked for is one of {', '.join(wanted)}")
    return chosen


def _seed(number: int) -> int:
    options.seed(number)
    return number


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Found], None]]:
    """A progress bar on standard error while it is a terminal; as an entry ends, its name."""
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("starting", total=total)
        yield lambda found: bar.update(task, advance=1, description=f"{found.corpus}: {found.name}")


def _show(screen: Console, result: Mapping[str, Any], asked: int) -> None:
    records = result["entries"]
    for corpus in CORPORA.values():
        mine = tables.of_corpus(records, corpus.name)
        if mine and not corpus.honest:
            screen.print(drawn(tables.kill_matrix(mine, f"{corpus.name}: {corpus.what}; kernels in which each check spoke")))
    asked_beside = [record for record in records if record["on_cases"]]
    if tables.wrong(asked_beside):
        screen.print("[bold]What other projects' comparisons let through, on the same cases and on their own inputs[/]")
        screen.print(drawn(tables.comparisons(asked_beside)))
    for said in tables.rarely(records):
        screen.print(said, markup=False, soft_wrap=True)
    _list(screen, "Found with options beside the defaults", tables.beyond(records))
    _list(screen, "Not found", tables.survivors(records))
    _alarms(screen, tables.accused(records))
    not_run = [record for record in records if record["not_run"]]
    for reason in dict.fromkeys(record["not_run"] for record in not_run):
        count = sum(record["not_run"] == reason for record in not_run)
        screen.print(f"not run: {counted(count, 'kernel')}, {reason}", markup=False)
    _close(screen, result, asked)


def _list(screen: Console, title: str, records: Sequence[tables.Record]) -> None:
    if records:
        screen.print(f"[bold]{title}[/]")
        screen.print(drawn(tables.named(records)))


def _alarms(screen: Console, records: Sequence[tables.Record]) -> None:
    for record in records:
        screen.print(f"[bold red]called wrong though honest[/]: {record['name']}: {escape(record['what'])}", soft_wrap=True)
        screen.print(f"  {record['first']}", markup=False, soft_wrap=True)


def _close(screen: Console, result: Mapping[str, Any], asked: int) -> None:
    """The last line: what was found of what, and how far the run came, of so many kernels that were asked for."""
    records = result["entries"]
    right = tables.honest(records)
    said = [tables.share(records)]
    if right:
        said.append(f"{len(tables.accused(records))} of {counted(len(right), 'honest one')} called wrong")
    if result["left"]:
        why = "interrupted" if result["interrupted"] else "out of time"
        said.append(f"{why}: {asked - result['left']} of {counted(asked, 'kernel')} done")
    style = "green" if _status(result) == errors.CONFORMS else "bold red"
    screen.print(f"[{style}]{said[0]}[/]; {'; '.join([*said[1:], ''])}{result['seconds']:g} s", soft_wrap=True)


def _status(result: Mapping[str, Any]) -> int:
    records = result["entries"]
    if tables.survivors(records) or tables.accused(records):
        return errors.DIFFERS
    if result["interrupted"]:
        return errors.INTERRUPTED
    if tables.wrong(records) or tables.honest(records):
        return errors.CONFORMS
    return errors.BAD_USAGE if result["left"] else errors.LACKING  # nothing was compared: no time, or no device

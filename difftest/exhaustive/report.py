"""What a person sees of an exhaustive run: what was judged, a table, distances, worst and planted pairs, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Task as Bar
from rich.text import Text

from difftest.exhaustive import domain
from difftest.exhaustive.run import Task, differs, missed
from difftest.exhaustive.tally import Tally
from difftest.report.table import Styled, Table, terminal
from difftest.wording import counted
from reference.formats import FORMATS

STYLE = {"conforms": "green", "differs": "bold red", "skipped": "yellow", "part": "yellow"}
MOST_SHOWN = 3  # worst pairs of a task


class _Rate(ProgressColumn):
    """Pairs a second."""

    def render(self, task: Bar) -> Text:
        """The rate so far, or nothing."""
        return Text(f"{task.speed:.3g} pairs/s" if task.speed else "")


@contextmanager
def progress(total: int) -> Iterator[Callable[[Task, int], None]]:
    """A progress bar on standard error while it is a terminal; gives the function to call with a task and its pairs of a turn."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield lambda task, pairs: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        shown = bar.add_task("compiling", total=total)
        yield lambda task, pairs: bar.update(shown, advance=pairs, description=task.name)


def what_is_judged(share: float, dtypes: Sequence[str]) -> str:
    """How many pairs of how many, and which, in a sentence."""
    count = domain.axis_of(share)
    if count == domain.PATTERNS:
        return f"all {domain.PAIRS:,} pairs of each"
    of = {dtype: domain.strata(FORMATS[dtype]) for dtype in dtypes}
    strata = "; ".join(f"{dtype} {each} strata, {count // each} patterns of each" for dtype, each in of.items())
    return (
        f"{count * count:,} of {domain.PAIRS:,} pairs of each ({count * count / domain.PAIRS:.3%}): {count:,} patterns of either "
        f"operand. A stratum is a sign and an exponent ({strata}: its first, its last, the others at random)"
    )


def verdict(record: Mapping[str, Any]) -> str:
    """A task's, in a word."""
    if record.get("skipped"):
        return "skipped"
    if differs(record):
        return "differs"
    return "conforms" if record.get("finished") else "part"


def table(records: Sequence[Mapping[str, Any]]) -> Table:
    """A line a task."""
    several = len({record["candidate"] for record in records}) > 1
    rows = []
    for record in (each for each in records if not each.get("skipped")):
        seconds = record["device_seconds"]
        said = verdict(record)
        share = f" {record['slices_done']}/{record['slices']}" if said == "part" else ""
        rows.append(
            (
                *((str(record["candidate"]),) if several else ()),
                *(str(record[key]) for key in ("op", "dtype", "contract")),
                f"{record['wrong']:,}",
                largest(record),
                f"{seconds:.4f}" if seconds < 10 else f"{seconds:.0f}",
                f"{record['pairs'] / seconds:.2g}" if seconds else "-",
                Styled(said + share, style=STYLE[said]),
            )
        )
    heads = ("operator", "dtype", "code", "wrong", "max ULP", "seconds", "pairs/s", "")
    return Table("", (*(("candidate",) if several else ()), *heads), tuple(rows), names=3 + several, left=("",))


def largest(record: Mapping[str, Any]) -> str:
    """The end of the last bin of distances: `1`, `≤ 4`."""
    low, high = record["histogram"][-1]["ulp"]
    return f"{high}" if low == high else f"≤ {high:,}"


def distances(record: Mapping[str, Any]) -> str:
    """The distances from the correctly rounded value, in a line."""
    parts = []
    for each in record["histogram"]:
        (low, high), below, above = each["ulp"], each["below"], each["above"]
        if high == 0:
            parts.append(f"0: {above:,}")
        elif below or above:
            size = f"{low}" if low == high else f"{low} to {high}"
            parts.append(f"±{size}: {below:,} below, {above:,} above")
    parts += [f"{name}: {count:,}" for name, count in record["classes"].items()]
    parts += [f"undecided in float64: {record['undecided']:,}"] if record["undecided"] else []
    return "; ".join(parts)


def show(screen: Console, document: Mapping[str, Any]) -> None:
    """The whole report of a run."""
    records = document["tasks"]
    shown = [record for record in records if not record.get("skipped")]
    if shown:
        screen.print(terminal(table(records)))
        screen.print("[bold]Distance from the correctly rounded value[/], in ULP: pairs")
    for record in shown:
        screen.print(f"{_name(record)}  {distances(record)}", markup=False, soft_wrap=True)
    for record in shown:
        _worst(screen, record)
        if record.get("failure"):
            screen.print(f"[red]{escape(_name(record))}: {escape(record['failure'])}[/]", soft_wrap=True)
        if record.get("planted"):
            _planted(screen, record)
    for record in records:
        if record.get("skipped"):
            screen.print(f"[yellow]skipped[/] {escape(_name(record))}: {escape(record['skipped'])}", soft_wrap=True)
    _verdict(screen, document, shown)


def _name(record: Mapping[str, Any]) -> str:
    return " ".join(str(record[key]) for key in ("candidate", "op", "dtype", "contract"))


def _worst(screen: Console, record: Mapping[str, Any]) -> None:
    wrong = [each for each in record.get("worst", ()) if each["wrong"]]
    if not wrong:
        return
    screen.print(f"[bold red]{escape(_name(record))}[/]: {record['wrong']:,} wrong, the worst of them", soft_wrap=True)
    for each in wrong[:MOST_SHOWN]:
        inputs = ", ".join(f"{name} {value}" for name, value in list(each.items())[1:3])
        text = f"  {inputs}: {each['output']}, right is {each['right']}, {each['apart']}; attainable"
        screen.print(f"{text} {each['lowest']} to {each['highest']}", markup=False, soft_wrap=True)


def _planted(screen: Console, record: Mapping[str, Any]) -> None:
    planted = record["planted"]
    text = f"{_name(record)}: {planted['found']} of {planted['passes']} planted outputs found"
    screen.print(text, style="bold red" if missed(record) else "dim", soft_wrap=True)
    for pair in planted["pairs"]:
        if not pair["found"]:
            screen.print(f"  missed: {pair['first']}, {pair['second']} -> {pair['output']}", markup=False)


def _verdict(screen: Console, document: Mapping[str, Any], shown: Sequence[Mapping[str, Any]]) -> None:
    tally = Tally()
    for record in shown:
        tally = tally.plus(Tally.from_json(dict(record)))
    early = f"; [yellow]{escape(document['stopped'])}[/]" if document["stopped"] else ""
    differing = sum(map(differs, shown))
    if not tally.pairs:
        screen.print(f"[yellow]nothing was judged[/], which is no pass{early}")
        return
    said = "differs" if differing else "conforms"
    text = f"{differing} of {counted(len(shown), 'task')}" if differing else counted(len(shown), "task")
    found = tally.to_json()
    screen.print(
        f"[{STYLE[said]}]{said}[/]: {text}, {tally.pairs:,} pairs: {found['judged']:,} bounded, {found['by_class']:,} by class "
        f"(NaN, Inf), {found['open']:,} that may be of any class; {tally.wrong:,} wrong{early}",
        soft_wrap=True,
    )

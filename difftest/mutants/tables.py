"""What a result of `mutants` says, as tables and sentences: for the terminal and for the page docs/power.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from difftest.mutants.checks import NAMES, UNKNOWN
from difftest.mutants.corpora import CORPORA
from difftest.mutants.published import PUBLISHED
from difftest.report.table import Styled, Table
from difftest.wording import counted

Record = Mapping[str, Any]
"""An entry of a result file: what is said of it and what was found."""

Records = Sequence[Record]


def of_corpus(records: Records, corpus: str) -> list[Record]:
    """The records of a corpus that were run."""
    return [record for record in records if record["corpus"] == corpus and not record["not_run"]]


def wrong(records: Records) -> list[Record]:
    """The records of mutants that were run."""
    return [record for record in records if not CORPORA[record["corpus"]].honest and not record["not_run"]]


def honest(records: Records) -> list[Record]:
    """The records of honest entries."""
    return [record for record in records if CORPORA[record["corpus"]].honest]


def survivors(records: Records) -> list[Record]:
    """The mutants that were missed at one seed or more."""
    return [record for record in wrong(records) if not record["killed"]]


def accused(records: Records) -> list[Record]:
    """The honest entries that were called wrong at any seed."""
    return [record for record in honest(records) if record["caught"] or record["caught_beyond"]]


def kill_matrix(records: Records, title: str) -> Table:
    """Kinds of fault by checks: in how many entries of a kind each check spoke."""
    spoke = [name for name in (*NAMES, UNKNOWN) if any(_caught(record, name) for record in records)]
    kinds = list(dict.fromkeys(record["kind"] for record in records))
    rows = [_counts(kind, [record for record in records if record["kind"] == kind], spoke) for kind in kinds]
    if len(kinds) > 1:
        rows.append(_counts("all", records, spoke))
    return Table(title, ("kind", "entries", "killed", *spoke), tuple(rows))


def _counts(kind: str, records: Records, checks: Sequence[str]) -> tuple[str | Styled, ...]:
    killed = sum(record["killed"] for record in records)
    dead = str(killed) if killed == len(records) else Styled(str(killed), strong=True, style="bold red")
    counts = (sum(_caught(record, check) for record in records) for check in checks)
    return (kind, str(len(records)), dead, *(str(count) if count else "" for count in counts))


def _caught(record: Record, check: str) -> bool:
    return bool(record["caught"].get(check) or record["caught_beyond"].get(check))


def comparisons(records: Records) -> Table:
    """What each project's own comparison lets through, of the wrong kernels whose operator it tests, beside this tester."""
    heads = (
        "comparison",
        "wrong kernels that it is asked about",
        "let through here",
        "on its own inputs",
        "honest ones called wrong",
    )
    bad, right = wrong(records), honest(records)
    rows = []
    for name in (each.name for each in PUBLISHED):
        asked = [record for record in bad if name in record["on_cases"]]
        if asked:
            here = str(sum(not record["on_cases"][name] for record in asked))
            own = [not record["on_its_own"][name] for record in asked if name in record["on_its_own"]]
            alarms = [record for record in right if name in record["on_cases"]]
            false = sum(record["on_cases"][name] or record["on_its_own"].get(name, False) for record in alarms)
            rows.append((name, str(len(asked)), here, str(sum(own)) if own else "-", _of(false, alarms)))
    asked = [record for record in bad if record["on_cases"]]
    ours = ("this tester", str(len(asked)), str(len(survivors(asked))), "-", _of(len(accused(right)), right))
    return Table("", heads, (*rows, ours))


def _of(count: int, records: Records) -> str:
    return f"{count} of {len(records)}" if records else "-"


def tolerances() -> Table:
    """The numbers of the comparisons, and where they were read."""
    rows = []
    for each in PUBLISHED:
        groups: dict[str, list[str]] = {}
        for op, by_dtype in each.tolerances.items():
            said = ", ".join(f"{dtype} {rtol:g} / {atol:g}" for dtype, (rtol, atol) in by_dtype.items())
            groups.setdefault(said, []).append(op)
        numbers = "; ".join(f"{said} ({', '.join(ops)})" if len(groups) > 1 else said for said, ops in groups.items())
        rows.append((each.name, numbers, each.source))
    return Table("", ("comparison", "rtol / atol", "read in"), tuple(rows), names=3)


def named(records: Iterable[Record]) -> Table:
    """Entries with what is wrong with them, and what of `difftest` beside its defaults finds or would have to find them."""
    rows = [(record["name"], record["what"], options(record) or "the default run") for record in records]
    return Table("", ("kernel", "what is wrong", "asked with"), tuple(rows), names=3)


def options(record: Record) -> str:
    """The options that an entry needs, as typed."""
    return " ".join(f"{name} {value}".strip() for name, value in record["beyond"].items())


def beyond(records: Records) -> list[Record]:
    """The mutants that the default run is not asked to find, and that their own options find."""
    return [record for record in wrong(records) if record["beyond"] and record["killed"]]


def rarely(records: Records) -> list[str]:
    """A sentence for each mutant that shows at random."""
    said = []
    for record in wrong(records):
        if record["one_in"] > 1:
            chance = 1 - (1 - 1 / record["one_in"]) ** record["calls"]
            said.append(
                f"{record['name']} shows in one call of {record['one_in']}: the {record['calls']} calls that were made find such "
                f"a fault with a probability of {chance:.2%}."
            )
    return said


def share(records: Records) -> str:
    """How many were killed, of how many."""
    bad = wrong(records)
    killed = len(bad) - len(survivors(bad))
    return (
        f"{killed} of {counted(len(bad), 'wrong kernel')} found ({killed / len(bad):.1%})" if bad else "no wrong kernel was run"
    )

"""Blocks of what the tester catches, from the committed result of `mutants`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from difftest.mutants import tables
from difftest.mutants.corpora import CORPORA
from difftest.pages import sources
from difftest.pages.sources import MUTANTS
from difftest.report.table import Table, markdown
from difftest.wording import counted


def _entries() -> list[dict[str, Any]]:
    """Each kernel once, with what the results of all seeds say of it."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in (entry for document in sources.documents(MUTANTS) for entry in document["entries"]):
        key = entry["corpus"], entry["name"]
        found[key] = _joined(found[key], entry) if key in found else entry
    return list(found.values())


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What the results of different seeds say of a kernel."""
    both = {name: {**one[name], **other[name]} for name in ("caught", "caught_beyond")}
    return {**other, **both, "first": one["first"] or other["first"], "seeds_missed": one["seeds_missed"] + other["seeds_missed"]}


def _block(make: Callable[[list[dict[str, Any]]], str]) -> Callable[[Path], str]:
    """A block of the entries of every committed result."""

    def block(page: Path) -> str:
        entries = _entries()
        return make(entries) if entries else sources.not_yet(MUTANTS)

    return block


def _headline(entries: list[dict[str, Any]]) -> str:
    right = tables.honest(entries)
    said = [
        f"{tables.share(tables.of_corpus(entries, corpus.name))}: {corpus.what}."
        for corpus in CORPORA.values()
        if not corpus.honest and tables.of_corpus(entries, corpus.name)
    ]
    seeds = {seed for document in sources.documents(MUTANTS) for seed in document["seeds"]}
    if right:
        said.append(
            f"{len(tables.accused(right))} of {len(right)} honest kernels called wrong, over {counted(len(seeds), 'seed')}."
        )
        said += [f"Called wrong: `{each['name']}` ({each['what']}) {each['first']}." for each in tables.accused(right)]
    return "".join(f"- {sentence}\n" for sentence in [*said, *tables.rarely(entries)])


def _matrices(entries: list[dict[str, Any]]) -> str:
    found = [
        markdown(tables.kill_matrix(mine, corpus.name))
        for corpus in CORPORA.values()
        if not corpus.honest and (mine := tables.of_corpus(entries, corpus.name))
    ]
    return "\n".join(found)


def _comparisons(entries: list[dict[str, Any]]) -> str:
    return markdown(tables.comparisons([entry for entry in entries if entry["on_cases"]]))


def _beyond(entries: list[dict[str, Any]]) -> str:
    return _named(tables.beyond(entries), "Every wrong kernel was found by the default run.\n")


def _survivors(entries: list[dict[str, Any]]) -> str:
    return _named(tables.survivors(entries), "None.\n")


def _named(records: list[tables.Record], otherwise: str) -> str:
    return markdown(tables.named(records)) if records else otherwise


def tolerances(page: Path) -> str:
    """The numbers of the comparisons, and where they were read."""
    return markdown(tables.tolerances())


def corpus(page: Path) -> str:
    """Every kernel of the field and what is wrong with it, kind by kind."""
    rows = tuple(
        (entry.kind, f"`{entry.name}`", ", ".join(f"`{op}`" for op in entry.ops), entry.what, entry.source)
        for entry in CORPORA["field"].entries()
    )
    heads = ("kind", "kernel", "operator", "what is wrong", "seen in")
    return markdown(Table("", heads, rows, names=len(heads)))


headline, matrices, comparisons, beyond, survivors = map(_block, (_headline, _matrices, _comparisons, _beyond, _survivors))

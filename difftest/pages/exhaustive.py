"""The block of the exhaustive runs: every implementation, operator, dtype and contract whose 2^32 pairs were judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from difftest.bench import tables
from difftest.pages import sources
from difftest.pages.sources import EXHAUSTIVE
from difftest.report.table import Table, markdown


def exhaustive(page: Path) -> str:
    """A row a task: time and rate, what is wrong, how far and how often outputs are from the right value, what was planted."""
    documents = sources.documents(EXHAUSTIVE)
    if not documents:
        return sources.not_yet(EXHAUSTIVE)
    best: dict[tuple[str, ...], dict[str, Any]] = {}
    for document in documents:  # of a task that several files have, the one with the most planted outputs
        for task in document["tasks"]:
            key = tuple(task[name] for name in ("candidate", "op", "dtype", "contract"))
            if task.get("finished") and _planted(task) >= _planted(best.get(key, {})):
                best[key] = task
    names = ("implementation", "operator", "dtype", "contract")
    heads = (*names, "seconds", "pairs a second", "wrong", "not the right value", "planted, found")
    table = Table("", heads, tuple(map(_row, best.values())), names=len(names))
    where = ", ".join(dict.fromkeys(map(tables.where, documents)))
    return f"{where}. Seconds are of the GPU, for all {2**32:,} pairs.\n\n{markdown(table)}"


def _planted(task: dict[str, Any]) -> int:
    return task.get("planted", {}).get("passes", 0)


def _share(share: float) -> str:
    return f"{share:.2%}" if share >= 1e-3 else f"{1e6 * share:.3g} ppm"


def _row(task: dict[str, Any]) -> tuple[str, ...]:
    right = next((each["above"] for each in task["histogram"] if each["ulp"] == [0, 0]), 0)
    planted = f"{task['planted']['found']} of {_planted(task)}" if _planted(task) else "-"
    return (
        task["candidate"],
        f"`{task['op']}`",
        task["dtype"],
        task["contract"],
        f"{task['device_seconds']:.4f}",
        f"{task['pairs'] / task['device_seconds']:.2g}",
        f"{task['wrong']:,}",
        _share(1 - right / task["judged"]),
        planted,
    )

"""What an entry's cases showed, at one seed and at all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Task = tuple[str, str, int]
"""A corpus, the name of an entry, a seed."""


@dataclass(slots=True)
class Found:
    """What an entry's cases showed.

    `caught`: check -> cases of the default run in which it spoke; `caught_beyond`: the same of the cases that need the entry's
    own options. `cases`, `calls`: run and made. `first`: where and in what words it was first found. `seeds_missed`: the seeds
    whose cases all said that it conforms. `not_run`: why no case was, if none was. `on_cases`, `on_its_own`: another project ->
    whether its comparison catches the entry on the default run's cases, and on inputs of its own.
    """

    corpus: str
    name: str
    cases: int = 0
    calls: int = 0
    caught: Counter[str] = field(default_factory=Counter)
    caught_beyond: Counter[str] = field(default_factory=Counter)
    first: str = ""
    seeds_missed: list[int] = field(default_factory=list)
    not_run: str = ""
    on_cases: dict[str, bool] = field(default_factory=dict)
    on_its_own: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        """Whether it was found, in the default run or with its own options, at every seed."""
        return bool(self.caught or self.caught_beyond) and not self.seeds_missed


def together(by_seed: Mapping[int, Found]) -> Found:
    """What an entry's seeds showed, as one."""
    first, *others = (by_seed[seed] for seed in sorted(by_seed))
    found = replace(first, caught=Counter(first.caught), caught_beyond=Counter(first.caught_beyond))
    for each in others:
        found.cases, found.calls, found.seconds = (
            found.cases + each.cases,
            found.calls + each.calls,
            found.seconds + each.seconds,
        )
        found.caught.update(each.caught)
        found.caught_beyond.update(each.caught_beyond)
        found.first = found.first or each.first
        found.seeds_missed = [*found.seeds_missed, *each.seeds_missed]
        found.on_cases, found.on_its_own = found.on_cases or each.on_cases, found.on_its_own or each.on_its_own
    return found

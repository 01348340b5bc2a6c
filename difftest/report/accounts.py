"""What became of every comparison of a run: each is counted once, under a name, so that the numbers add up."""

from __future__ import annotations

from collections import Counter

from difftest.run.check import Result
from difftest.run.session import Outcome
from difftest.wording import counted

CONFORM, DIFFER, NO_EVIDENCE, NO_ELEMENTS, SKIPPED, NOT_RUN = (
    "conform",
    "differ",
    "without evidence",
    "without elements",
    "skipped",
    "not run",
)
WHY = {
    CONFORM: "a trivial mutant fails each",
    NO_EVIDENCE: "a trivial mutant passes too",
    NO_ELEMENTS: "no rows, so nothing to compare",
}


def ended(result: Result) -> str:
    """How a comparison that took place ended."""
    if result.differs:
        return DIFFER
    if not any(comparison.elements for comparison in result.outputs.values()):
        return NO_ELEMENTS
    return NO_EVIDENCE if result.vacuous else CONFORM


def accounts(outcome: Outcome) -> dict[str, int]:
    """Name -> comparisons, those with none left out. Together they are every case with every reference."""
    found = Counter(ended(result) for result in outcome.results)
    found[SKIPPED], found[NOT_RUN] = len(outcome.skips), outcome.not_run * outcome.references
    return {name: found[name] for name in (CONFORM, DIFFER, NO_EVIDENCE, NO_ELEMENTS, SKIPPED, NOT_RUN) if found[name]}


def sentence(outcome: Outcome) -> str:
    """``1,167 comparisons = 1,011 conform + 132 without evidence + 24 without elements``."""
    terms = accounts(outcome)
    return f"{counted(sum(terms.values()), 'comparison')} = " + " + ".join(f"{count:,} {name}" for name, count in terms.items())


def unproved(outcome: Outcome) -> str:
    """The regimes of the comparisons without evidence, each with its count: ``zeros 44, subnormal 60``."""
    regimes = Counter(result.case.regime for result in outcome.results if ended(result) == NO_EVIDENCE)
    return ", ".join(f"{name} {count}" for name, count in regimes.items())

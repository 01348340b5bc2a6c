"""Adds results up: by operator, dtype and reference; the verdict of a whole run; its worst case; its skips by reason."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from difftest import errors
from difftest.cases.case import Case
from difftest.run.check import Result, Skip
from difftest.run.session import DIED, Outcome
from difftest.verdict import pooled
from difftest.wording import counted


@dataclass(slots=True)
class Total:
    """One output's counts over many cases."""

    elements: int = 0
    mismatches: int = 0
    max_ulp: int = 0
    histogram: Counter[int] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Group:
    """All results of one operator, dtype and reference."""

    op: str
    dtype: str
    against: str
    results: list[Result] = field(default_factory=list)

    @property
    def differing(self) -> list[Result]:
        """The results that differ."""
        return [r for r in self.results if r.differs]

    @property
    def verdict(self) -> str:
        """ "differs", "conforms", or "no evidence" when no case could have told a trivial mutant from the operator."""
        if self.differing:
            return "differs"
        return "conforms" if any(r.evidence for r in self.results) else "no evidence"

    def totals(self) -> dict[str, Total]:
        """Output name -> its counts."""
        return totals(self.results)


def totals(results: Iterable[Result]) -> dict[str, Total]:
    """Output name -> its counts over all the results."""
    found: dict[str, Total] = {}
    for result in results:
        for name, comparison in result.outputs.items():
            total = found.setdefault(name, Total())
            total.elements += comparison.elements
            total.mismatches += comparison.mismatches
            total.max_ulp = max(total.max_ulp, comparison.max_ulp)
            total.histogram.update({int(key): count for key, count in comparison.histogram.items()})
            total.classes.update(comparison.classes)
    return found


def groups(results: Iterable[Result]) -> list[Group]:
    """The results by operator, dtype and reference, in the order in which each first appears."""
    found: dict[tuple[str, str, str], Group] = {}
    for result in results:
        key = (result.case.op, result.case.dtype, result.against)
        found.setdefault(key, Group(*key)).results.append(result)
    return list(found.values())


def verdict(outcome: Outcome) -> str:
    """ "differs" when any case does, or the cases together; "conforms" when every group has evidence; else, or after a fault of
    the tester's own, "no evidence"."""
    verdicts = {group.verdict for group in groups(outcome.results)}
    if "differs" in verdicts or leanings(outcome.results):
        return "differs"
    if outcome.fault:
        return "no evidence"
    return "conforms" if verdicts == {"conforms"} else "no evidence"


def leanings(results: Sequence[Result]) -> dict[tuple[str, str, str], str]:
    """What the cases of an operator, dtype and contract show together, and no case alone: a sentence for each."""
    found: dict[tuple[str, str, str], dict[Case, pooled.Sums]] = {}
    for result in results:
        case = result.case
        if pooled.STATISTIC in result.statistics and not result.differs:
            found.setdefault((case.op, case.dtype, case.spelling), {})[case] = pooled.of_plain(
                result.statistics[pooled.STATISTIC]
            )
    together = {key: pooled.pooled(cases.values()) for key, cases in found.items()}
    return {key: pooled.sentence(each) for key, each in together.items() if each}


def early(outcome: Outcome) -> str:
    """Why cases were not run and how many; nothing where all were."""
    if not outcome.not_run:
        return ""
    if outcome.interrupted:
        why = "interrupted"
    elif outcome.fault:
        why = "a fault of the tester itself"
    elif outcome.given_up:
        why = outcome.given_up
    elif any(DIED in reason for result in outcome.results for reason in result.reasons):
        why = "a process died"  # with the cases that it had yet to run; whether time ran out as well is not known
    else:
        why = "out of time"
    return f"{why}: {counted(outcome.not_run, 'case')} not run"


def exit_status(outcome: Outcome) -> int:
    """1 for a difference, 130 when interrupted without one, 0 when all conforms.

    Without evidence: 3 when everything was skipped (something that was asked for is missing), else 2 (the cases asked
    for could not tell right from wrong).
    """
    found = verdict(outcome)
    if found == "differs":
        return errors.DIFFERS
    if outcome.interrupted:
        return errors.INTERRUPTED
    if found == "conforms":
        return errors.CONFORMS
    return errors.LACKING if outcome.skips and not outcome.results else errors.BAD_USAGE


def severity(result: Result) -> tuple[bool, bool, int, int, int]:
    """An order on results, the worst largest: differing first, then no output at all, class mismatches, ULP, counts."""
    outputs = result.outputs.values()
    return (
        result.differs,
        not outputs,
        sum(sum(c.classes.values()) for c in outputs),
        max((c.max_ulp for c in outputs), default=sys.maxsize),
        sum(c.mismatches for c in outputs),
    )


def worst(results: Iterable[Result]) -> Result | None:
    """The worst result, or None when there is no mismatch anywhere."""
    found = max(results, key=severity, default=None)
    if found is None or not (found.differs or any(c.mismatches for c in found.outputs.values())):
        return None
    return found


def other_contracts(results: Iterable[Result]) -> list[tuple[str, str, str, int]]:
    """Reference, the contract it follows, the contract asked for where that is another, and the number of results."""
    found = Counter((r.against, r.followed, r.case.spelling) for r in results if r.followed)
    return [(against, str(followed), contract, count) for (against, followed, contract), count in found.items()]


def called_again(results: Iterable[Result]) -> list[Result]:
    """The results of cases that were called again and in parts, one for each case."""
    return list({result.case: result for result in reversed(list(results)) if result.stability}.values())[::-1]


def remarked(results: Iterable[Result]) -> Result | None:
    """The first result that depends on the batch where that is a remark; None where there is none."""
    for result in called_again(results):
        if result.stability and result.stability.batch_elements and not result.stability.batch_invariant:
            return result
    return None


def notes(results: Iterable[Result]) -> Counter[str]:
    """What the candidate did beside computing -> in how many cases."""
    cases = {result.case: result.notes for result in results}
    return Counter(note for each in cases.values() for note in each)


def stability(results: Iterable[Result]) -> dict[str, int]:
    """How many cases were called again and in parts, and in how many of them bits changed."""
    found = [result.stability for result in called_again(results) if result.stability]
    return {
        "cases": len(found),
        "changing": sum(s.changing > 0 for s in found),
        "batch_dependent": sum(s.batch_elements > 0 for s in found),
    }


def skips_by_reason(skips: Iterable[Skip]) -> list[dict[str, object]]:
    """Skips that share operator, dtype, reference and reason, with their count and their widths."""
    found: dict[tuple[str, str, str, str], list[Skip]] = {}
    for skip in skips:
        found.setdefault((skip.case.op, skip.case.dtype, skip.against, skip.reason), []).append(skip)
    return [
        {
            "op": op,
            "dtype": dtype,
            "against": against,
            "reason": reason,
            "cases": len(members),
            "widths": sorted({skip.case.width for skip in members}),
        }
        for (op, dtype, against, reason), members in found.items()
    ]

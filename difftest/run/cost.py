"""How long a session will take, roughly, before it runs."""

from __future__ import annotations

from difftest.run.session import Session

# Measured on two cores of a cloud machine (December 2026) over the default cases: a case costs Python and torch some forty small
# calls, an element a pass through the verdict in float64. The emulator compiles two kernels for an operator's dtype, or, where a
# weight may have another, four.
SECONDS_A_CASE, SECONDS_AN_ELEMENT, SECONDS_A_GROUP = 5e-3, 5e-7, 2.0
WORTH_SAYING = 120.0  # seconds: what takes less needs no announcement
COMPILED = ("numba", "textbook")


def seconds(session: Session) -> float:
    """The estimate, to a factor of two or three, on an idle machine; a time budget bounds it."""
    elements = sum(case.rows * case.width for case in session.cases)
    found = len(session.cases) * SECONDS_A_CASE
    if session.cases and session.cases[0].device == "cpu":
        found += elements * SECONDS_AN_ELEMENT * (1 + len(session.against)) / 2
    if session.candidate in COMPILED:
        found += len(session.groups()) * SECONDS_A_GROUP
    found /= max(1, session.workers)
    return found if session.time_budget is None else min(found, session.time_budget)


def announcement(session: Session) -> str:
    """One line for a run of minutes; nothing for a shorter one."""
    expected = seconds(session)
    if expected < WORTH_SAYING:
        return ""
    elements = sum(case.rows * case.width for case in session.cases)
    what = f"{len(session.cases):,} cases of {elements / 1e6:,.0f} million elements"
    return f"this will take about {expected / 60:.0f} minutes: {what}; --time-budget SECONDS ends it early"

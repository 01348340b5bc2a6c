"""The check of one case: the candidate's call first, its verdict, then its distance from each reference's outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from difftest.cases.case import Case
from difftest.run import stability
from difftest.run.call import Tensors, call
from difftest.run.perform import Performer
from difftest.run.stability import Stability
from difftest.verdict import judge, pooled
from difftest.verdict.compare import Comparison, compare
from difftest.verdict.judge import Verdict
from difftest.verdict.truth import OUTLIER_ULP
from difftest.verdict.vacuity import survivors
from difftest.verdict.worst import with_truth
from difftest.wording import in_a_line
from reference.providers import Provider, Unavailable

USUAL_WIDTH = 4096  # which every library takes that takes any


@dataclass(frozen=True, slots=True)
class Result:
    """One case against one reference.

    `reasons` is empty when the candidate conforms to the case's contract and kept to its memory; it says nothing of the
    reference. `outputs`: how far the candidate is from the reference, empty when there was nothing to compare (the
    candidate raised, or returned something else than its output). `followed`: the contract that the reference followed,
    if it can't follow the case's. `vacuous`: the trivial mutants that would have passed. `statistics`: the verdict's.
    `stability`: what further calls showed, None where there were none. `notes`: what the candidate did beside computing.
    """

    case: Case
    candidate: str
    against: str
    reasons: tuple[str, ...]
    outputs: dict[str, Comparison] = field(default_factory=dict)
    vacuous: tuple[str, ...] = ()
    followed: str | None = None
    statistics: dict[str, Any] = field(default_factory=dict)
    stability: Stability | None = None
    notes: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is worth knowing and is no difference."""
        return (*(self.stability.remarks if self.stability else ()), *self.notes)

    @property
    def calls(self) -> int:
        """How often the candidate was called, each of them judged."""
        return 1 + (self.stability.calls if self.stability else 0)

    @property
    def differs(self) -> bool:
        """Whether a difference was found."""
        return bool(self.reasons)

    @property
    def evidence(self) -> bool:
        """Whether the case says something: elements were compared, and no trivial mutant would have passed."""
        return not self.vacuous and any(c.elements for c in self.outputs.values())

    def to_json(self) -> dict[str, Any]:
        """Plain data: the case's own keys, and what was found."""
        return {
            **self.case.to_json(),
            "candidate": self.candidate,
            "against": self.against,
            "verdict": "differs" if self.differs else "conforms",
            "reasons": list(self.reasons),
            "remarks": list(self.remarks),
            "evidence": self.evidence,
            "vacuous": list(self.vacuous),
            "reference_follows": self.followed or self.case.spelling,
            "statistics": {key: _plain(value) for key, value in self.statistics.items() if key != pooled.STATISTIC},
            "stability": self.stability.to_json() if self.stability else None,
            "outputs": {name: comparison.to_json() for name, comparison in self.outputs.items()},
        }


@dataclass(frozen=True, slots=True)
class Skip:
    """A comparison that did not take place, and why."""

    case: Case
    against: str
    reason: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What the calls of one case came to: outputs by name, what is wrong with them, what the verdict measured.

    `outputs` is empty where the candidate raised, or returned something else than its output.
    """

    outputs: dict[str, torch.Tensor]
    reasons: tuple[str, ...]
    statistics: dict[str, Any] = field(default_factory=dict)
    stability: Stability | None = None
    notes: tuple[str, ...] = ()


def function_of(case: Case, candidate: Provider) -> Callable | Performer | str:
    """The candidate's function for the case, or why it can't run it."""
    reason = candidate.check(case)
    if reason is None:
        try:
            return candidate.function(case.op, case.contract)
        except (ValueError, Unavailable) as error:
            reason = str(error)
        except SystemExit as error:
            reason = f"raised SystemExit: {error}"
    return reason if reason.startswith(f"{candidate.name} ") else f"{candidate.name}: {reason}"


def _judged(case: Case, inputs: Tensors, outputs: Tensors) -> Verdict:
    return judge(case.operator, inputs, outputs, case.contract)


def observe(
    case: Case,
    function: Callable | Performer,
    inputs: Tensors,
    *,
    again: bool = False,
    batch_invariant: bool = False,
    judged: Callable[[Case, Tensors, Tensors], Verdict] = _judged,
) -> Observed:
    """Calls a candidate's function on the case's inputs and judges what it gave. No references.

    `again` and `batch_invariant` as of `check`. `judged`: the verdict on the case's inputs and outputs.
    """
    called = call(case, function, inputs)
    outputs, reasons, notes = called.outputs, list(called.faults), called.notes
    stable = None
    if again and outputs and case.rows:
        stable = stability.check(case, function, inputs, called, batch_invariant)
        reasons += stable.reasons
        notes = notes + list(stable.notes)
    noted = tuple(dict.fromkeys(notes))
    if not outputs or not case.rows:
        return Observed(outputs, tuple(reasons), stability=stable, notes=noted)
    verdict = judged(case, inputs, outputs)
    return Observed(outputs, (*reasons, *verdict.reasons), verdict.statistics, stable, noted)


def check(
    case: Case, candidate: Provider, references: Sequence[Provider], *, again: bool = False, batch_invariant: bool = False
) -> list[Result | Skip]:
    """Runs the case with the candidate and compares its outputs with each reference's, in their order.

    `again`: calls the candidate a second time, and on parts of the rows, `difftest.run.stability`. `batch_invariant`: bits
    that depend on the part are a difference, as they are for a provider that promises to have none.
    """
    function = function_of(case, candidate)
    if isinstance(function, str):
        return [Skip(case, reference.name, function) for reference in references]
    inputs = case.inputs(case.device)
    promised = batch_invariant or bool(getattr(candidate, "batch_invariant", False))
    seen = observe(case, function, inputs, again=again, batch_invariant=promised)
    outputs = seen.outputs
    vacuous = survivors(case.operator, inputs, case.contract) if outputs and case.rows else []
    about = (seen.statistics, seen.stability, seen.notes)
    blank = Result(case, candidate.name, "", seen.reasons, {}, tuple(vacuous), None, *about)
    return [_against(blank, reference, inputs, outputs) for reference in references]


def nothing_runs(provider: Provider, cases: Sequence[Case]) -> str | None:
    """The one reason why the provider can run none of the cases, nor one of them at a usual width; None where there isn't one."""
    reasons = set()
    for case in (*cases, *(replace(case, width=USUAL_WIDTH) for case in cases[:1])):
        reasons.add(provider.check(case))
        if None in reasons or len(reasons) > 1:
            return None
    return reasons.pop() if reasons else None


def _against(result: Result, reference: Provider, inputs: Tensors, outputs: Tensors) -> Result | Skip:
    """The result with the reference's name and the distances from it."""
    case = result.case
    reason = reference.check(case)
    if reason is not None:
        return Skip(case, reference.name, reason)
    if not outputs:
        return replace(result, against=reference.name)
    try:
        function, followed = _as_near_as_it_can(reference, case)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the reference's failure is not the candidate's
        return Skip(case, reference.name, f"raised {in_a_line(error)}")
    expected = call(case.plain(), function, inputs)
    if expected.failure:
        return Skip(case, reference.name, expected.failure)
    by_role = case.operator.split(inputs)
    found = {}
    for name in case.operator.outputs:
        sides = outputs[name], expected.outputs[name]
        found[name] = compare(*sides, by_role)
        element = found[name].worst
        if element and (result.differs or found[name].classes or found[name].max_ulp > OUTLIER_ULP):  # who of the two is off?
            truth = with_truth(element, name, sides, case.operator, inputs, case.contract)
            found[name] = replace(found[name], worst=truth)
    return replace(result, against=reference.name, outputs=found, followed=followed)


def _as_near_as_it_can(reference: Provider, case: Case) -> tuple[Callable, str | None]:
    """The reference's function under the case's contract, or under its own where it can't follow another; and which that is."""
    try:
        return reference.function(case.op, case.contract), None
    except ValueError:
        return reference.function(case.op), str(reference.claims(case.op))


def _plain(value: Any) -> Any:
    """JSON has no Inf and no NaN: they become text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value

"""One case: the candidate first, on guarded memory, then each reference on copies of what the candidate was given.

Imports torch, `reference` and this package's cases, buffers and comparison.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from difftest import buffers
from difftest.cases import Case
from difftest.compare import Comparison, compare
from difftest.dtypes import DTYPES, bits
from difftest.vacuity import survivors
from difftest.verdict import judge
from reference.contracts import Contract
from reference.operators import Operator
from reference.providers import Provider, Unavailable

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Result:
    """One case against one reference.

    `reasons` is empty when the candidate conforms to the case's contract and kept to its memory; it says nothing of the
    reference. `outputs`: how far the candidate is from the reference, empty when there was nothing to compare (the
    candidate raised, or returned something else than its output). `followed`: the contract that the reference followed,
    if it can't follow the case's. `vacuous`: the trivial mutants that would have passed. `statistics`: the verdict's.
    """

    case: Case
    candidate: str
    against: str
    reasons: tuple[str, ...]
    outputs: dict[str, Comparison] = field(default_factory=dict)
    vacuous: tuple[str, ...] = ()
    followed: str | None = None
    statistics: dict[str, Any] = field(default_factory=dict)

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
            "evidence": self.evidence,
            "vacuous": list(self.vacuous),
            "reference_follows": self.followed or self.case.contract,
            "statistics": {key: _plain(value) for key, value in self.statistics.items()},
            "outputs": {name: comparison.to_json() for name, comparison in self.outputs.items()},
        }


@dataclass(frozen=True, slots=True)
class Skip:
    """A comparison that did not take place, and why."""

    case: Case
    against: str
    reason: str


class BadOutput(Exception):
    """What a candidate returned is not its output; the message says what is wrong with it."""


def run_case(case: Case, candidate: Provider, references: Sequence[Provider]) -> list[Result | Skip]:
    """Runs the case once with the candidate and compares its outputs with each reference's, in their order."""
    device = torch.device(case.device)
    op, contract = case.operator, case.resolved_contract()
    reason = _unusable(candidate, case, device)
    if reason is None:
        try:
            function = candidate.function(case.op, contract)
        except (ValueError, Unavailable) as error:
            reason = str(error)
    if reason is not None:
        return [Skip(case, reference.name, f"{candidate.name}: {reason}") for reference in references]

    given = buffers.allocate_inputs(case, device)
    inputs = {name: buffer.snapshot() for name, buffer in given.items()}
    out = buffers.allocate_output(case, device) if case.out_given and takes_out(function) else None
    reasons: list[str] = []
    outputs: Tensors = {}
    try:
        with buffers.poisoned_allocations():
            outputs = _call_candidate(op, function, given, out, contract)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except BadOutput as error:
        reasons.append(str(error))
    except Exception as error:  # a candidate may raise anything: that is a finding, not a failure of the tester
        reasons.append(f"raised {type(error).__name__}: {error}")
    memory = [*given.values(), *([out] if out else [])]
    for buffer in memory:
        stray = buffer.stray_writes(writable=buffer is out or buffer.name in op.mutated)
        if stray:
            reasons.append(stray)
    vacuous: list[str] = []
    statistics: dict[str, Any] = {}
    if outputs and case.rows:
        verdict = judge(op, inputs, outputs, contract)
        reasons += verdict.reasons
        statistics = verdict.statistics
        vacuous = survivors(op, inputs, contract)
    blank = Result(case, candidate.name, "", tuple(reasons), {}, tuple(vacuous), None, statistics)
    return [_against(blank, reference, inputs, outputs) for reference in references]


def takes_out(function: Callable) -> bool:
    """Whether the function has a parameter `out`, as FlashInfer's norms and activations do."""
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def call(op: Operator, function: Callable, tensors: Tensors, contract: Contract, **more: Any) -> Any:
    """Calls a function of the operator's signature on the tensors."""
    arguments = [tensors[name] for name in op.inputs]
    if op.family != "gated":
        arguments.append(contract.eps)  # type: ignore[arg-type]
    return function(*arguments, **more)


def _call_candidate(
    op: Operator,
    function: Callable,
    given: Mapping[str, buffers.Buffer],
    out: buffers.Buffer | None,
    contract: Contract,
) -> Tensors:
    views = {name: buffer.view for name, buffer in given.items()}
    returned = call(op, function, views, contract, **({"out": out.view} if out else {}))
    if op.mutated:
        untouched = all(torch.equal(bits(view), bits(given[name].snapshot())) for name, view in views.items())
        if returned is not None and untouched and views["input"].any():
            raise BadOutput(f"returned a {type(returned).__name__} and overwrote nothing; {op.name} works in place")
        return {"output": views["input"].clone(), "residual": views["residual"].clone()}
    output = out.view if out else returned
    rows = views["input"]
    shape = (*rows.shape[:-1], rows.shape[-1] // 2) if op.family == "gated" else tuple(rows.shape)
    if not isinstance(output, torch.Tensor):
        raise BadOutput(f"returned a {type(output).__name__}, not a tensor")
    if tuple(output.shape) != shape:
        raise BadOutput(f"output has shape {tuple(output.shape)}, not {shape}")
    if output.dtype != rows.dtype:
        raise BadOutput(f"output has dtype {output.dtype}, not {rows.dtype}")
    if output.device != rows.device:
        raise BadOutput(f"output is on {output.device}, not {rows.device}")
    for name, view in views.items():
        if buffers.overlap(output, view):
            raise BadOutput(f"output shares memory with {name}")
    return {"output": output.clone()}


def _unusable(provider: Provider, case: Case, device: torch.device) -> str | None:
    return (
        provider.unavailable(device)
        or (None if provider.claims(case.op) else f"has no {case.op}")
        or provider.refuses(case.op, DTYPES[case.dtype].storage, case.width, device)
    )


def _against(result: Result, reference: Provider, inputs: Tensors, outputs: Tensors) -> Result | Skip:
    """The result with the reference's name and the distances from it."""
    case = result.case
    reason = _unusable(reference, case, torch.device(case.device))
    if reason is not None:
        return Skip(case, reference.name, reason)
    if not outputs:
        return replace(result, against=reference.name)
    try:
        expected, followed = _expected(case.operator, reference, inputs, case.resolved_contract())
        found = {name: compare(outputs[name], expected[name], inputs) for name in case.operator.outputs}
    except Exception as error:  # the reference's failure is not the candidate's
        return Skip(case, reference.name, f"raised {type(error).__name__}: {error}")
    return replace(result, against=reference.name, outputs=found, followed=followed)


def _plain(value: Any) -> Any:
    """JSON has no Inf and no NaN: they become text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _expected(op: Operator, reference: Provider, inputs: Tensors, contract: Contract) -> tuple[Tensors, str | None]:
    """The reference's outputs under the contract, or under its own where it can't follow another; and which that is."""
    followed = None
    try:
        function = reference.function(op.name, contract)
    except ValueError:
        function = reference.function(op.name)
        followed = str(reference.claims(op.name))
    tensors = {name: tensor.clone() for name, tensor in inputs.items()}
    returned = call(op, function, tensors, contract)
    if op.mutated:
        return {"output": tensors["input"], "residual": tensors["residual"]}, followed
    return {"output": returned}, followed

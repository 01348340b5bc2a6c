"""From what was observed to a document: distances of pairs, each one's contract, errors against the truth, outliers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import torch

from difftest.cases.case import Case
from difftest.matrix.observe import Answer, Task
from difftest.matrix.request import Request, by_group
from difftest.matrix.run import Observed
from difftest.run.environment import environment
from difftest.verdict import truth, ulp
from difftest.verdict.truth import Errors
from reference.contracts import Contract, contract
from reference.exact.oracle import OracleResult, correctly_rounded
from reference.operators import OPERATORS
from reference.operators.declaration import DEFAULT_EPS
from reference.providers import Provider

SCHEMA = "numba-kernels/matrix/2"
BEFORE = "numba-kernels/matrix/1"  # had `cells` for the cases of a group

Outputs = dict[str, torch.Tensor]


def document(asked: Request, observed: Observed, providers: dict[str, Provider]) -> dict[str, Any]:
    """The whole matrix as plain data; README and the tables say how to read it."""
    groups = [_group(asked, observed, providers, cases) for cases in by_group(asked.cases).values()]
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).date().isoformat(),
        "environment": {**environment(asked.device), "cuda": str(torch.version.cuda or "none")},
        "request": {
            "candidates": list(asked.candidates),
            "against": list(asked.against),
            "widths": list(asked.widths),
            "seed": asked.seed,
        },
        "seconds": round(observed.seconds, 1),
        "interrupted": observed.interrupted,
        "providers": {
            name: {
                "version": observed.versions[name],
                "unavailable": observed.unavailable.get(name),
                "not_run": observed.not_run.get(name, 0),
                "seconds": observed.seconds_by_name.get(name),
            }
            for name in asked.names
        },
        "groups": groups,
    }
    return {**found, "verdict": verdict(found)}


def verdict(found: dict[str, Any]) -> str:
    """ "differs" where one fails or does not follow what it claims; "no evidence" where no contract was found."""
    members = [each for group in found["groups"] for each in group["providers"].values()]
    if any(each["failed"] or each["keeps_claim"] is False for each in members):
        return "differs"
    return "conforms" if any(each["follows"] for each in members) else "no evidence"


def _group(asked: Request, observed: Observed, providers: dict[str, Provider], cases: Sequence[Case]) -> dict[str, Any]:
    op, dtype = cases[0].op, cases[0].dtype
    oracle = _Oracle()
    members: dict[str, Any] = {}
    to_truth: dict[str, Errors] = {}
    outputs: dict[str, dict[Case, Outputs]] = {}
    for name in asked.names:
        answers = {task: said for task, said in observed.answers.get(name, {}).items() if task.group == (op, dtype)}
        if not answers:
            continue
        outputs[name] = {task.case: torch.load(said["file"]) for task, said in answers.items() if "file" in said}
        member = members[name] = _member(providers[name], op, answers)
        exact, own = contract(op), _own(providers[name], op, member)
        for key, against in (("errors", exact), ("errors_in_contract", own)):
            found = truth.errors(oracle.against(outputs[name], against))
            member[key] = found.to_json() if found else None
            if found and key == "errors":
                to_truth[name] = found
    return {
        "op": op,
        "dtype": dtype,
        "cases": [case.to_json() for case in cases],
        "providers": members,
        "pairs": [_pair(a, b, outputs.get(a, {}), outputs.get(b, {})) for a, b in asked.pairs if a in members and b in members],
        "outliers": {name: truth.sentence(name, to_truth) for name in truth.outliers(to_truth)},
    }


def _member(provider: Provider, op: str, answers: dict[Task, Answer]) -> dict[str, Any]:
    """What one implementation claims, what it was found to follow, what it skipped and where it failed."""
    identified = next((said["identified"] for said in answers.values() if "identified" in said), None)
    claimed = provider.claims(op)
    follows = identified["contract"] if identified else None
    keeps = None
    if identified and claimed and identified["verdict"] != "undecided":
        keeps = follows == claimed.code and (
            identified["weight_bias"] == claimed.weight_bias and identified["bias_in_fp32"] == claimed.bias_in_fp32
        )
    return {
        "claims": claimed.code if claimed else None,
        "follows": follows,
        "keeps_claim": keeps,
        "identified": identified,
        "skipped": _reasons(answers, "skipped"),
        "failed": _reasons(answers, "failed"),
    }


def _reasons(answers: dict[Task, Answer], kind: str) -> dict[str, list[str]]:
    """Reason -> the tasks it was given for."""
    found: dict[str, list[str]] = {}
    for task, said in answers.items():
        if kind in said:
            found.setdefault(said[kind], []).append(str(task))
    return found


def _own(provider: Provider, op: str, member: dict[str, Any]) -> Contract:
    """The contract found, else the one claimed, else the operator's first."""
    identified = member["identified"]
    if member["follows"] and identified["weight_bias"] == OPERATORS[op].weight_bias:
        eps = DEFAULT_EPS if identified["eps"] is None else identified["eps"]
        return replace(contract(op, member["follows"], eps), bias_in_fp32=identified["bias_in_fp32"])
    return provider.claims(op) or contract(op)


def _pair(a: str, b: str, first: dict[Case, Outputs], second: dict[Case, Outputs]) -> dict[str, Any]:
    """Two implementations over the cases that both answered: counts over `output`, and of `residual` apart."""
    found: dict[str, Any] = {"a": a, "b": b}
    for name in ("output", "residual"):
        elements = mismatches = most = classes = 0
        for case in first.keys() & second.keys():
            if name not in first[case]:
                continue
            away = ulp.distance(first[case][name], second[case][name])
            size = away.ulp.abs()
            elements += size.numel()
            most = max(most, int(size.max()) if size.numel() else 0)
            apart = int((~away.comparable).sum())
            classes += apart
            mismatches += int(size.count_nonzero()) + apart
        if elements or name == "output":
            found[name] = {
                "elements": elements,
                "mismatches": mismatches,
                "share": mismatches / elements if elements else None,
                "max_ulp": most,
                "class_mismatches": classes,
            }
    return found


class _Oracle:
    """The right results of a group's cases, each asked for once a contract."""

    def __init__(self) -> None:
        self._known: dict[tuple[Case, Contract], OracleResult] = {}

    def against(
        self, outputs: dict[Case, Outputs], held_to: Contract
    ) -> Iterator[tuple[torch.Tensor, OracleResult, dict[str, torch.Tensor]]]:
        """Output, truth and inputs by role of each case."""
        for case, found in outputs.items():
            inputs = case.inputs(case.device)
            if (case, held_to) not in self._known:
                self._known[case, held_to] = correctly_rounded(case.op, inputs, held_to)
            yield found["output"], self._known[case, held_to], case.operator.split(inputs)

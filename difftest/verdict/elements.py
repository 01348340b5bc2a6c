"""What the judges say of single elements."""

from __future__ import annotations

import math
from typing import Any

import torch

from reference.operators.contract import Contract
from reference.rounding import round_from_f64


def counts(differing: torch.Tensor, unattainable: torch.Tensor, elements: int) -> dict[str, Any]:
    """What every judge counts, of so many elements judged."""
    count = int(differing.sum())
    return {
        "elements": elements,
        "differing": count,
        "differing_rate": count / elements if elements else 0.0,
        "unattainable": int(unattainable.sum()),
    }


def judge_classes(
    candidate: torch.Tensor, expected: torch.Tensor, compared: torch.Tensor, statistics: dict[str, Any]
) -> list[str]:
    """NaN, +Inf, -Inf or finite, where `compared`."""
    wrong = compared & (class_of(candidate) != class_of(expected))
    statistics["classes"] = int(compared.sum())
    count = statistics["class_mismatches"] = int(wrong.sum())
    if not count:
        return []
    row, column = divmod(int(wrong.reshape(-1).to(torch.uint8).argmax()), candidate.shape[-1])
    found, right = candidate[row, column].item(), expected[row, column].item()
    shown = right if not math.isfinite(right) else "finite"
    return [f"{count} non-finite results are of another class; row {row}, column {column} is {found:.9g}, not {shown}"]


def class_of(values: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 Inf, -1 -Inf, 2 NaN."""
    infinite = torch.where(torch.isinf(values), torch.sign(values), 0).to(torch.int8)
    return torch.where(torch.isnan(values), 2, infinite)


def judge_zero_signs(
    candidate: torch.Tensor, negative: torch.Tensor, fixed: torch.Tensor, statistics: dict[str, Any]
) -> list[str]:
    """The sign of a zero, where it is `fixed`: distances in ULP take +0 and -0 for one value."""
    wrong = fixed & (candidate == 0) & (torch.signbit(candidate) != negative)
    count = int(wrong.sum())
    statistics["zero_signs"] += count
    if not count:
        return []
    row, column = divmod(int(wrong.reshape(-1).to(torch.uint8).argmax()), candidate.shape[-1])
    found = candidate[row, column].item()
    return [f"{count} zeros have the wrong sign; row {row}, column {column} is {found:g}, not {-found:g}"]


def describe_worst(candidate: torch.Tensor, truth: torch.Tensor, wrong: torch.Tensor, contract: Contract, elements: int) -> str:
    """The wrong element farthest from the truth, relative to it."""
    distance = ((candidate.double() - truth) / truth.abs().clamp(min=1e-45)).abs().nan_to_num(nan=torch.inf)
    row, column = divmod(int(torch.where(wrong, distance, -1.0).argmax()), candidate.shape[-1])
    right = round_from_f64(truth[row, column].reshape(1), candidate.dtype).item()
    return (
        f"{int(wrong.sum())} of {elements} elements lie where no fp32 evaluation of {contract.code} rounds to; "
        f"row {row}, column {column} is {candidate[row, column].item():.9g}, not {right:.9g}"
    )

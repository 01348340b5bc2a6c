"""The judge of gated activations: nothing is shared along a row, so attainability says all, the rate included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from difftest.verdict import elements
from reference.exact.attainable import activation_interval, ends, gated_ends, gated_judged
from reference.exact.bounds import FP32_MAX, FP32_TINY
from reference.exact.terms import GatedTerms
from reference.operators.contract import Contract
from reference.rounding import rounding_interval


def judge(terms: GatedTerms, outputs: Mapping[str, torch.Tensor], contract: Contract, statistics: dict[str, Any]) -> list[str]:
    """Why the output does not follow the contract, a sentence each; fills in the statistics. Each element alone."""
    candidate = outputs["output"].reshape(terms.gate.shape)
    judged = gated_judged(terms) & ~_overflowed(terms, candidate)
    truth = terms.unrounded()
    interval_lowest, interval_highest = rounding_interval(candidate)
    differing = judged & ~((truth >= interval_lowest) & (truth <= interval_highest))
    allowed = gated_ends(terms, activation_interval(terms, cancelling=False))
    unattainable = judged & ~allowed.contains(candidate)
    cancelling = 0
    if terms.analysis.cancelling_error is not None and bool(unattainable.any()):
        allowed, narrow = ends(terms), unattainable
        unattainable = judged & ~allowed.contains(candidate)
        cancelling = int((narrow & ~unattainable).sum())
    count = int(judged.sum())
    statistics |= elements.counts(differing, unattainable, count)
    statistics["explained"] = int((judged & ((allowed.lowest != allowed.highest) | allowed.vanishes)).sum())
    statistics |= {"cancelling": cancelling, "classes": 0, "class_mismatches": 0, "zero_signs": 0}
    reasons = []
    if bool((~gated_judged(terms)).any()):
        reasons += elements.judge_classes(candidate, truth, ~gated_judged(terms) & settled(terms), statistics)
    if statistics["unattainable"]:
        reasons.append(elements.describe_worst(candidate, truth, unattainable, contract, count))
    elif bool((candidate == 0).any()):
        reasons += elements.judge_zero_signs(candidate, terms.negative, judged & ~terms.sign_is_free(), statistics)
    return reasons


def _overflowed(terms: GatedTerms, candidate: torch.Tensor) -> torch.Tensor:
    """Where (gate * up) * sigmoid(gate) explains an Inf or a NaN: gate * up is beyond fp32, and Inf * 0 is NaN."""
    if terms.later_factors():
        return torch.zeros_like(candidate, dtype=torch.bool)
    beyond = (terms.gate * terms.up).abs() > 0.999 * FP32_MAX
    infinite = torch.isinf(candidate) & (torch.signbit(candidate) == terms.negative)
    return beyond & (infinite | (torch.isnan(candidate) & (terms.factor < FP32_TINY)))


def settled(terms: GatedTerms) -> torch.Tensor:
    """Where a NaN or an Inf that comes in leaves one class only; (rows, width), without meaning where all is finite.

    act(-Inf) is -Inf * 0 in one form and 0 in another, and Inf times an activation that may vanish is either: in fp32, or where
    it is stored (half of fp16's smallest number, say, which is a tie).
    """
    activated = terms.gate * terms.factor
    may_vanish = activated.abs() < 1e-30
    if terms.rounds_activation:
        alone = replace(terms, up=torch.ones_like(terms.up))
        may_vanish = may_vanish | ends(alone).contains(torch.zeros_like(terms.up, dtype=terms.storage))
    return (terms.gate != -torch.inf) & ~(torch.isinf(terms.up) & may_vanish)

"""How far outputs are from the truth, in ULP of the output dtype: bias, quantiles, and the share correctly rounded.

The truth is the operator under the contract given, correctly rounded or before its last rounding (`reference.exact.oracle`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from difftest.verdict.compare import compare
from difftest.verdict.worst import Element
from reference.exact.oracle import OracleResult, fractional_ulp_error
from reference.operators.declaration import Tensors

LEVELS = (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)  # of |error|; 1.0 is the largest

# An implementation is an outlier where its largest error is past this many ULP and another one's is not. Two inner
# roundings leave less than 3 ULP; what cancels loses tens and hundreds.
OUTLIER_ULP = 8.0


@dataclass(frozen=True, slots=True)
class Errors:
    """Signed errors against the truth before its last rounding, in ULP of the truth's binade.

    `mean` is the bias, `quantiles` are of the magnitude, by level. `right`: elements that are the correctly rounded
    value. `max_steps`: the most representable values between an element and the correctly rounded one, which counts on
    where the output is zero, or of another binade than the truth. `classes`: elements that are NaN or Inf where the
    truth is not, or the reverse; they have no error. `worst`: one of those, or the element of `max_steps`; None if all
    are right.
    """

    elements: int
    mean: float
    quantiles: dict[str, float]
    right: int
    max_steps: int
    classes: int
    worst: Element | None = None

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return self.quantiles[str(LEVELS[-1])]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "right_share": self.right / self.elements if self.elements else 0.0}


def errors(found: Iterable[tuple[torch.Tensor, OracleResult, Tensors]]) -> Errors | None:
    """The errors of several calls together: output, truth and inputs by role of each. None where there is no element."""
    signed, elements, right, steps, classes = [], 0, 0, 0, 0
    worst: Element | None = None
    for output, truth, inputs in found:
        expected = truth.outputs["output"]
        values = output.to(expected.device)
        error = fractional_ulp_error(values, truth).flatten()
        signed.append(error[~torch.isnan(error)])
        seen = compare(values, expected, inputs)
        elements += seen.elements
        right += seen.elements - seen.mismatches
        classes += sum(seen.classes.values())
        if seen.worst and (worst is None or seen.classes or seen.max_ulp > steps):
            worst = seen.worst
        steps = max(steps, seen.max_ulp)
    if not elements:
        return None
    all_errors = torch.cat(signed)
    magnitude = all_errors.abs().sort().values
    return Errors(
        elements,
        float(all_errors.mean()) if len(all_errors) else 0.0,
        {str(level): _quantile(magnitude, level) for level in LEVELS},
        right,
        steps,
        classes,
        worst,
    )


def outliers(by_name: Mapping[str, Errors]) -> list[str]:
    """The names that the truth is far from, although another is near it; the farthest first. However many they are."""
    far = [name for name, each in by_name.items() if each.largest > OUTLIER_ULP or each.classes]
    return sorted(far, key=lambda name: -by_name[name].largest) if len(far) < len(by_name) else []


def sentence(name: str, by_name: Mapping[str, Errors]) -> str:
    """What makes `name` the outlier, with its worst element."""
    mine = by_name[name]
    far = outliers(by_name)
    others = max((each.largest for other, each in by_name.items() if other not in far), default=0.0)
    text = (
        f"{name} is the outlier: its error reaches {mine.largest:.3g} ULP, that of {len(by_name) - len(far)} others {others:.3g}"
    )
    if mine.worst:
        inputs = ", ".join(f"{key} {value}" for key, value in mine.worst.inputs.items())
        text += f"; where {inputs}, it gives {mine.worst.actual}, right is {mine.worst.expected}: {mine.worst.apart}"
    return text


def _quantile(ascending: torch.Tensor, level: float) -> float:
    """The smallest magnitude that a share `level` of the elements does not exceed."""
    if not len(ascending):
        return 0.0
    return float(ascending[max(0, math.ceil(level * len(ascending)) - 1)])

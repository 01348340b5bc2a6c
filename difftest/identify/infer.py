"""The decision: which contract, which bias, which eps, or none.

When is a name certain? When nothing that was observed contradicts it, and at least `MARGIN` elements contradict every
other corner. Neither is a matter of tolerance: the values that a contract allows are all that sane fp32 arithmetic can
give (`reference.exact.attainable`), so one element outside them refutes it, whatever order the kernel sums in. The margin is
above one only so that no name rests on a handful of elements whose bound some unusual hardware misses. With the rows of
`probes.telling`, over a thousand elements contradict each wrong corner at width 3, and over ten thousand at width 4096.
A rounded rstd or a mean over width + 1 shifts whole rows by 2^-9 and 1 / (2 * width), a thousand times and more what
fp32 explains, so no corner is left uncontradicted, and the answer is "none".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from difftest.cases.case import Case
from difftest.identify import hypotheses, probes
from difftest.identify.hypotheses import EPS_CANDIDATES, Hypothesis, with_values
from difftest.identify.tally import Contradiction, Observation, Tally, nearest, tally
from difftest.run.call import call
from difftest.verdict import judge
from difftest.verdict.rstd_interval import rstd_interval
from reference.exact.terms import NormTerms, terms
from reference.formats import of
from reference.operators import Operator
from reference.operators.contract import Contract, contract_of
from reference.operators.declaration import DEFAULT_EPS, EPS, RSTD

MARGIN = 16
ONE_SIDED = 16
OTHER_EPS = 1e-4  # passed in a second call, to see whether eps is listened to

Function = Callable


@dataclass(slots=True)
class Identification:
    """What was found.

    `found`: the contract followed, or None. `among`: the codes that nothing contradicts, where that is more than one and
    they are told apart by no element: all of them for fp32, or at widths so narrow that they coincide. `codes`, `biases`,
    `eps`: the counts behind it. `eps_passed`: what the candidate was given; `listens`: it follows another eps when given
    one (None: not asked); `listens_to`: the same of each further parameter, those left out of which it takes no other value.
    `approximate`: elements that only a hardware tanh explains. `why`: why the answer is none.
    `nearest` and `first`: then, the contract that least contradicts, and the first element that does. `remarks`: what
    else was seen. `refused`: width -> reason, for widths the candidate does not take.
    """

    op: Operator
    dtype: torch.dtype
    widths: list[int] = field(default_factory=list)
    found: Contract | None = None
    among: tuple[str, ...] = ()
    codes: list[Tally] = field(default_factory=list)
    biases: list[Tally] = field(default_factory=list)
    eps: list[Tally] = field(default_factory=list)
    eps_passed: float = DEFAULT_EPS
    listens: bool | None = None
    listens_to: dict[str, bool] = field(default_factory=dict)
    approximate: int = 0
    why: str = ""
    nearest: Hypothesis | None = None
    first: Contradiction | None = None
    remarks: list[str] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def undecided(self) -> bool:
        """Several contracts fit, and the widths asked for can't tell them apart."""
        return self.found is None and len(self.among) > 1

    @property
    def eps_ignored(self) -> bool:
        """The candidate does not use the eps that it is passed."""
        return self.found is not None and (self.found.eps != self.eps_passed or self.listens is False)


def identify(
    op: Operator, function: Function, dtype: torch.dtype, widths: Sequence[int], device: str = "cpu", seed: int = 0
) -> Identification:
    """Calls `function` (FlashInfer's signature) on probes of each width and names the contract it follows.

    Whatever the function raises is a finding, short of `Refused`, which leaves the width out.
    """
    result = Identification(op, dtype)
    passed = contract_of(op)
    loud = _observe(result, function, probes.telling, widths, device, seed, passed)
    if op.switches:
        loud += _observe(result, function, partial(probes.switching, contract=passed), result.widths, device, seed, passed)
    if not loud:
        result.why = result.why or "it refuses every width asked for"
        return result
    best = _corner(result, loud)
    if best is None or result.why:
        return result
    result.found = best.contract
    if op.vectors:
        _biases(result, loud, best)
    if EPS in op.parameters:
        result.found = None  # until an eps is found too
        _eps(result, function, best, device, seed)
    if result.found is not None:
        _parameters(result, function, best, device, seed)
    _remark(result, loud)
    return result


def _observe(
    result: Identification, function: Function, draw: Callable, widths: Sequence[int], device: str, seed: int, passed: Contract
) -> list[Observation]:
    """One call a width with the numbers of `passed`; fills in what was refused, and why there is nothing to go on if it fails."""
    seen = []
    for width in widths:
        inputs = {name: t.to(device) for name, t in draw(result.op, result.dtype, width, seed).items()}
        lead = tuple(inputs[result.op.rows[0]].shape[:-1])
        case = Case(result.op.name, of(result.dtype).name, lead, width, "", seed, passed, device=device)
        called = call(case, function, inputs)
        if called.refused:
            result.refused[width] = called.refused
        elif called.failure:
            result.why = f"at width {width} it {called.failure}" if called.raised else f"at width {width}: {called.failure}"
        else:
            seen.append(Observation(inputs, called.outputs))
            if width not in result.widths:
                result.widths.append(width)
    return seen


# --- corners ----------------------------------------------------------------------------------------------------------


def _corner(result: Identification, seen: list[Observation]) -> Hypothesis | None:
    """The one code that fits; None, with the reason filled in, where there is none or more than one."""
    result.codes = tally(hypotheses.codes(result.op, result.dtype), seen)
    if not any(each.fits for each in result.codes):
        for others in _explanations(result, seen):
            if any(each.fits for each in others):
                result.codes = others
                break
    fitting = [each for each in result.codes if each.fits]
    if not fitting:
        _none(result, seen)
        return None
    if result.dtype is torch.float32:
        result.among = result.op.codes
        return fitting[0].hypothesis
    open_still = [each for each in result.codes if each.fits or each.contradicting < MARGIN]
    if len(open_still) > 1:
        result.among = tuple(each.hypothesis.contract.code for each in open_still)
        widths = ", ".join(map(str, result.widths))
        result.why = f"widths {widths} can't tell {' from '.join(result.among)}"
        return None
    return fitting[0].hypothesis


def _explanations(result: Identification, seen: list[Observation]) -> list[list[Tally]]:
    """Other ways to read the output under the operator's codes: other biases; a hardware tanh in the activation."""
    op, dtype = result.op, result.dtype
    if op.made_of == RSTD:
        variants = [hypotheses.biases(op, code, dtype) for code in op.codes[: len(hypotheses.codes(op, dtype))]]
        return [tally(by_code, seen) for by_code in zip(*[v[1:] for v in variants], strict=True)]
    if op.activation == "gelu":
        return []
    # An exact activation of another name is that, and no approximation of this one.
    for other in tally(hypotheses.other_functions(op, dtype), seen):
        if other.fits:
            result.remarks.append(f"it computes {other.hypothesis.op.name} under {other.hypothesis.contract.code}")
            return []
    approximate = tally([replace(each.hypothesis, hardware_tanh=True) for each in result.codes], seen)
    for strict, loose in zip(result.codes, approximate, strict=True):
        if not loose.fits:
            continue
        if _one_sided(strict.hypothesis, seen):
            result.remarks.append("its tanh is off to one side alone, as that of another argument is and no hardware tanh")
            return []
        result.approximate = strict.contradicting
    return [approximate]


def _one_sided(strict: Hypothesis, seen: list[Observation]) -> bool:
    """Whether what contradicts has tanh too far from 0 everywhere, or too near, but for one element in `ONE_SIDED`.

    A table of tanh is off to either side; 0.0447 for 0.044715 is off to one.
    """
    far = near = 0
    for each in seen:
        allowed, output = strict.allows(each.inputs)["output"], each.outputs["output"]
        wrong = ~allowed.contains(output)
        larger = torch.where(output < 0, output < allowed.lowest, output > allowed.highest)
        outwards = larger ^ (strict.op.split(each.inputs)["gate"] < 0)  # act = gate (1 + tanh) / 2
        far += int((wrong & outwards).sum())
        near += int((wrong & ~outwards).sum())
    return min(far, near) * ONE_SIDED < far + near


def _none(result: Identification, seen: list[Observation]) -> None:
    """Says why: a width that follows another contract than the rest, or the nearest and what contradicts it."""
    tried = [each.hypothesis for each in result.codes]
    by_width = {w: [t for t in tally(tried, [each for each in seen if each.width == w]) if t.fits] for w in result.widths}
    if all(by_width.values()):
        named = [f"width {width} follows {' or '.join(map(str, (t.hypothesis for t in t_)))}" for width, t_ in by_width.items()]
        result.why = "; ".join(named)
    best = nearest(result.codes)
    result.nearest, result.first = best.hypothesis, best.first
    result.why = result.why or f"{best.contradicting} of {best.elements} elements contradict {best.hypothesis}, the nearest"


# --- bias and eps -----------------------------------------------------------------------------------------------------


def _biases(result: Identification, seen: list[Observation], best: Hypothesis) -> None:
    """The counts for every bias under the code found, whose own bias is among them."""
    result.biases = tally(hypotheses.biases(result.op, best.contract.code, result.dtype), seen)
    if sum(each.fits for each in result.biases) > 1:
        result.remarks.append("these weights can't tell where the bias is added")


def _eps(result: Identification, function: Function, best: Hypothesis, device: str, seed: int) -> None:
    """The eps that fits on rows of small mean square, and whether it is the one passed."""
    seen = _observe(result, function, probes.quiet, result.widths, device, seed + 1, contract_of(result.op))
    if not seen or result.why:
        result.nearest = best
        return
    result.eps = tally([with_values(best, eps=eps) for eps in EPS_CANDIDATES], seen)
    if not any(each.fits for each in result.eps):
        measured = _measured_eps(best, seen)
        if measured is not None:
            result.eps += tally([with_values(best, eps=measured)], seen)
    fitting = [each.hypothesis for each in result.eps if each.fits]
    if not fitting:
        least = nearest(result.eps)
        result.nearest, result.first = least.hypothesis, least.first
        result.why = f"on rows of unit scale and more it follows {best}, but no eps explains those of small mean square"
        return
    if len(fitting) > 1:
        result.remarks.append("eps " + ", ".join(f"{h.contract.eps:g}" for h in fitting) + " can't be told apart here")
    result.found = fitting[0].contract
    if result.found.eps == DEFAULT_EPS:
        other = contract_of(result.op, eps=OTHER_EPS)
        again = _observe(result, function, probes.quiet, result.widths, device, seed + 1, other)
        result.listens = bool(again) and tally([with_values(best, eps=OTHER_EPS)], again)[0].fits


def _parameters(result: Identification, function: Function, best: Hypothesis, device: str, seed: int) -> None:
    """Of each parameter but eps, given its other value in a call of its own: whether the kernel follows that, or the default
    still. The answer is none where it follows neither.
    """
    refused = dict(result.refused)
    for parameter in result.op.parameters:
        if parameter == EPS:
            continue
        other = {parameter.name: parameter.other}
        passed = contract_of(result.op).with_values(other)
        draw = partial(probes.switching, contract=passed)
        seen = _observe(result, function, draw, result.widths, device, seed + 1, passed)
        result.refused = dict(refused)  # the widths were taken, if not this value
        followed, ignored = tally([with_values(best, **other), best], seen)
        if followed.fits:
            result.listens_to[parameter.name] = True
        elif ignored.fits:
            result.listens_to[parameter.name] = False
        elif seen or result.why:
            result.found, result.nearest, result.first = None, best, followed.first
            what = result.why or f"{followed.contradicting} of {followed.elements} elements contradict {best}"
            result.why = f"with {parameter.name} {parameter.other:g}, {what}"
            return


def _measured_eps(best: Hypothesis, seen: list[Observation]) -> float | None:
    """The eps that every row's rstd allows, to three digits if such a one is allowed; None when rows disagree.

    rstd = (mean square + eps)^(-1/2): with e the error against eps = 0, eps = mean square * ((1 + e)^-2 - 1).
    """
    lowest, highest = -math.inf, math.inf
    for each in seen:
        found = terms(best.op, each.inputs, with_values(best, eps=0.0).contract)
        assert isinstance(found, NormTerms)
        rows = rstd_interval(found, each.outputs["output"].reshape(found.hidden.shape))
        square = found.mean_square[:, 0]
        usable = torch.isfinite(rows.lowest) & torch.isfinite(rows.highest) & torch.isfinite(rows.bound) & (rows.lowest > -1)
        if not bool(usable.any()):
            continue
        slack = 2 * rows.bound
        least = square * ((1 + rows.highest).pow(-2) * (1 - slack) - 1)
        most = square * ((1 + rows.lowest).pow(-2) * (1 + slack) - 1)
        lowest, highest = max(lowest, float(least[usable].max())), min(highest, float(most[usable].min()))
    if not (0.0 < highest < math.inf and lowest <= highest):
        return None
    middle = max(0.0, (lowest + highest) / 2)
    rounded = float(f"{middle:.3g}")
    return rounded if lowest <= rounded <= highest else middle


def _remark(result: Identification, seen: list[Observation]) -> None:
    """What the verdict finds beyond single elements: a rate, rows that lean, a row that no one rstd explains."""
    if result.found is None or result.approximate or result.found.weight_bias != result.op.weight_bias:
        return
    for each in seen:
        contract = replace(result.found, eps=DEFAULT_EPS)
        reasons = judge(result.op, each.inputs, each.outputs, contract).reasons
        result.remarks += [f"width {each.width}: {reason}" for reason in reasons]

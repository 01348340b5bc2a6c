"""What the judging kernels say of a pair is what the reference and the tester's own judge say of it."""

import pytest
import torch

from difftest.exhaustive.domain import Domain, patterns
from difftest.exhaustive.slots import BY_CLASS, EXPLAINED, JUDGED, UNATTAINABLE, WRONG_CLASS, WRONG_RESIDUAL, WRONG_ZERO
from difftest.exhaustive.sweep import Sweep
from difftest.verdict.judge import judge
from difftest.verdict.ulp import ordered
from reference.exact.attainable import attainable
from reference.exact.oracle import correctly_rounded
from reference.formats import FORMATS
from reference.operators import OPERATORS
from reference.operators.contract import contract_of

SIDE = 256  # patterns of an operand
FAST = ("silu_and_mul", "S0", "bf16")
OTHERS = [
    (name, code, dtype)
    for name, op in OPERATORS.items()
    if len(op.roles) == 2
    for code in op.codes
    for dtype in ("bf16", "fp16")
    if (name, code, dtype) != FAST
]
FORMS = [FAST, *(pytest.param(*form, marks=pytest.mark.slow) for form in OTHERS)]


def stepped(values, step):
    """The values so many places further on the integer line, zero being one place."""
    place = ordered(values) + step
    pattern = torch.where(place < 0, place.abs() | 0x8000, place)
    return (pattern - (pattern >> 15 << 16)).to(torch.int16).view(values.dtype)


def ends(which, step):
    """What gives an end of every attainable set, or what is `step` beyond it; right values where nothing is bounded."""

    def outputs(op, inputs, contract):
        found, right = attainable(op, inputs, contract), correctly_rounded(op, inputs, contract).outputs
        moved = stepped(getattr(found, which)(), step)
        return {**right, "output": torch.where(found.judged["output"], moved, right["output"])}

    return outputs


def right(op, inputs, contract):
    return dict(correctly_rounded(op, inputs, contract).outputs)


def zeros_turned(op, inputs, contract):
    """Right values, but every zero of the other sign."""
    found = right(op, inputs, contract)
    return {**found, "output": torch.where(found["output"] == 0, -found["output"], found["output"])}


def noisy(op, inputs, contract):
    """Right values, most of them moved by up to two places, and some made NaN, Inf, 0 or 1; residuals likewise."""
    found = right(op, inputs, contract)
    generator = torch.Generator().manual_seed(7)
    for name, values in found.items():
        steps = torch.randint(-2, 3, values.shape, generator=generator)
        values = torch.where(torch.isfinite(values), stepped(values, steps), values)
        chance = torch.rand(values.shape, generator=generator)
        for k, odd in enumerate((torch.nan, torch.inf, -torch.inf, 0.0, 1.0)):
            values = torch.where((chance >= 0.01 * k) & (chance < 0.01 * k + 0.01), odd, values)
        found[name] = values
    return found


def sweep(form, outputs):
    """The tally of `outputs(op, inputs, contract)` over pairs of every stratum, and each call's inputs and outputs."""
    name, code, dtype = form
    op, contract, calls = OPERATORS[name], contract_of(name, code), []

    def candidate(*arguments):
        tensors = dict(zip(op.inputs, arguments, strict=False))
        inputs = {name: tensor.clone() for name, tensor in tensors.items()}
        found = outputs(op, inputs, contract)
        calls.append((inputs, {name: tensor.clone() for name, tensor in found.items()}))
        for output, name in op.lands_in.items():
            tensors[name].copy_(found[output])
        return None if op.mutated else found["output"]

    firsts, seconds = (_some(patterns(FORMATS[dtype], 2048, seed), seed) for seed in (1, 2))
    domain = Domain(firsts, seconds, rows=64, width=SIDE)
    made = Sweep(name, dtype, contract, candidate, domain, torch.device("cpu"))
    for part in domain.slices():
        made.step(part)
    return made.read(), calls


def _some(every, seed):
    return every[torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))[:SIDE]]


@pytest.mark.parametrize(("name", "code", "dtype"), FORMS)
def test_both_ends_of_every_attainable_set_are_in_and_their_neighbours_are_out(name, code, dtype):
    for which, outwards in (("lowest", -1), ("highest", 1)):
        within, _ = sweep((name, code, dtype), ends(which, 0))
        assert within.wrong == within.counts[WRONG_ZERO]  # an end that is 0 has any sign here
        beyond, _ = sweep((name, code, dtype), ends(which, outwards))
        assert beyond.wrong == beyond.counts[UNATTAINABLE] == beyond.counts[JUDGED] > SIDE * SIDE // 2


@pytest.mark.parametrize(("name", "code", "dtype"), FORMS)
def test_the_right_values_are_at_distance_0_all_of_them(name, code, dtype):
    tally, _ = sweep((name, code, dtype), right)
    (zero,) = tally.histogram()
    assert zero.count == tally.counts[JUDGED]
    assert tally.pairs == SIDE * SIDE


@pytest.mark.parametrize(("name", "code", "dtype"), FORMS)
def test_zeros_of_the_wrong_sign_are_those_that_the_judge_names(name, code, dtype):
    tally, calls = sweep((name, code, dtype), zeros_turned)
    found = [judge(name, inputs, outputs, contract_of(name, code)).statistics for inputs, outputs in calls]
    if not any(each["unattainable"] for each in found):  # it looks at signs only where nothing else is wrong
        assert tally.wrong == tally.counts[WRONG_ZERO] == sum(each["zero_signs"] for each in found)


# One output of these two is unattainable to the table and attainable to the judge. The table is right: h * rstd is an fp32
# number, and the least within the bound is the tie itself, which goes to the even neighbour. The judge takes the odd one's
# rounding interval up to the tie, not to the fp32 number below it.
APART = {("fused_add_rmsnorm", "R0W1", "fp16"), ("gemma_fused_add_rmsnorm", "R0W1", "fp16")}


@pytest.mark.parametrize(("name", "code", "dtype"), FORMS)
def test_every_count_is_the_judges_own(name, code, dtype, request):
    if (name, code, dtype) in APART:
        request.applymarker(pytest.mark.xfail(strict=True, reason="the judge admits one output of width 1 too many"))
    tally, calls = sweep((name, code, dtype), noisy)
    found = [judge(name, inputs, outputs, contract_of(name, code)).statistics for inputs, outputs in calls]
    total = {key: sum(each.get(key, 0) for each in found) for key in found[0]}
    counts = tally.counts
    assert counts[JUDGED] == total["elements"]
    assert counts[UNATTAINABLE] == total["unattainable"] > 0
    assert counts[WRONG_CLASS] == total["class_mismatches"] > 0
    assert counts[WRONG_RESIDUAL] == total["residual_mismatches"]
    if OPERATORS[name].activation:
        assert counts[BY_CLASS] == total["classes"] > 0
        assert counts[EXPLAINED] == total["explained"]


def test_what_a_call_leaves_unwritten_is_wrong():
    name, code, dtype = FAST
    domain = Domain(patterns(FORMATS[dtype], 1024, 1), patterns(FORMATS[dtype], 1024, 2), rows=64, width=1024)
    made = Sweep(name, dtype, contract_of(name, code), lambda input, out=None: out, domain, torch.device("cpu"))
    made.step(next(domain.slices()))
    assert made.read().counts[UNATTAINABLE] == made.read().counts[JUDGED] > 0

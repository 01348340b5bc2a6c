"""Shrinking goes down one order, keeps to the kind of failure, and ends at the smallest call in which a planted fault shows."""

import math
from dataclasses import replace

import pytest
import torch

from difftest.cases import Case, binades
from difftest.providers.resolve import resolve
from difftest.search import attempt, kinds, order
from difftest.search.example import Example
from difftest.search.shrink import shrink
from reference.contracts import contract
from reference.formats import FORMATS

NEVER = math.inf


def example(op, dtype, lead, width, regime="normal", **layout):
    return Example.of(Case(op, dtype, lead, width, regime, 7, contract(op), **layout))


def right(op):
    return resolve("torch").function(op, contract(op))


def shrunk(start, function):
    """The example at the end, and how it was reached; it still fails, for the same kind of reason."""
    found = attempt.reasons(start, function)
    assert found, "the fault does not show to begin with"
    kind = kinds.first(found)

    def fails(each):
        reasons = attempt.reasons(each, function)
        return bool(reasons) and kinds.first(reasons) == kind

    end = shrink(start, fails, NEVER)
    assert end.whole
    assert fails(end.example)
    assert end.example is start or order.simpler(end.example, start)
    return end.example


def off_where(op, wrong):
    """The operator, half as large again wherever `wrong` says so of its first tensor."""
    plain = right(op)

    def function(x, *others):
        bad = wrong(x)
        found = plain(x, *others)
        if bad:
            (x if found is None else found).mul_(1.5)
        return found

    return function


def in_binade(x, exponent):
    return bool(((x.abs() >= 2.0**exponent) & (x.abs() < 2.0 ** (exponent + 1))).any())


@pytest.mark.parametrize(
    ("op", "dtype", "width", "exponent"),
    [
        ("rmsnorm", "bf16", 137, 20),
        ("rmsnorm", "fp16", 1, -20),
        ("fused_add_rmsnorm", "fp32", 64, -140),
        ("silu_and_mul", "bf16", 90, 3),
    ],
)
def test_a_fault_of_one_width_and_binade_ends_as_one_row_of_ones_with_one_value_of_the_binade(op, dtype, width, exponent):
    share = 2 if op == "silu_and_mul" else 1
    function = off_where(op, lambda x: x.shape[-1] == share * width and in_binade(x.float(), exponent))
    start = example(op, dtype, (0,), width, "binades")
    rows = binades.rows_for(start.case.operator, start.case.format, width)
    end = shrunk(Example.of(replace(start.case, lead=(rows,))), function)
    assert (end.case.rows, end.case.width) == (1, width)
    odd = [v for values in end.values.values() for v in values.flatten().tolist() if v != 1.0]
    assert odd == [2.0**exponent]


@pytest.mark.parametrize(("least", "most"), [(3, 3), (34, 10**9), (2, 2)])
def test_as_few_rows_are_left_as_the_fault_needs(least, most):
    function = off_where("rmsnorm", lambda x: least <= len(x) <= most)
    end = shrunk(example("rmsnorm", "bf16", (min(most, 70),), 5), function)
    assert (end.case.rows, end.case.width) == (least, 1)


def test_the_width_that_is_left_is_the_smallest_that_fails():
    function = off_where("rmsnorm", lambda x: x.shape[-1] % 64 == 0 or x.shape[-1] == 37)
    assert shrunk(example("rmsnorm", "bf16", (4,), 192), function).case.width == 37


def test_rows_of_more_axes_become_a_matrix_where_the_fault_lets_them():
    function = off_where("rmsnorm", lambda x: x.shape[-1] >= 3)
    assert shrunk(example("rmsnorm", "fp32", (2, 3), 6), function).case.lead == (1,)
    deep = off_where("rmsnorm", lambda x: x.ndim == 3)
    assert shrunk(example("rmsnorm", "fp32", (2, 3), 6), deep).case.lead == (1, 1)


def test_of_an_odd_layout_only_what_the_fault_needs_is_left():
    function = off_where("rmsnorm", lambda x: x.stride(0) > x.shape[-1] and len(x) > 1)
    start = example(
        "rmsnorm", "bf16", (3,), 8, padding=(("input", 8), ("output", 24)), misaligned=("input", "output"), out="given"
    )
    end = shrunk(start, function).case
    assert (end.lead, end.width) == ((2,), 1)
    assert (end.padding, end.misaligned, end.out) == ((("input", 1),), (), "none")


def test_the_numbers_of_a_call_become_the_usual_ones():
    held_to = contract("rmsnorm", "W0", 1e-5)
    start = Example.of(Case("rmsnorm", "bf16", (2,), 4, "normal", 7, held_to, weight_dtype="fp32"))
    end = shrunk(start, off_where("rmsnorm", lambda x: True)).case
    assert (end.contract, end.weight_dtype) == (contract("rmsnorm"), None)


def test_one_kind_of_failure_is_not_taken_for_another_on_the_way_down():
    plain = right("rmsnorm")

    def raises_on_few(x, weight, eps):
        if x.shape[-1] < 16:
            raise ValueError("too narrow")
        return plain(x, weight, eps) * 1.5

    assert shrunk(example("rmsnorm", "bf16", (4,), 100), raises_on_few).case.width == 16


def test_what_can_be_made_no_simpler_stays_as_it_is():
    one = example("rmsnorm", "bf16", (1,), 1)
    one = one.with_values("input", torch.ones(1, 1, dtype=torch.bfloat16)).with_values(
        "weight", torch.ones(1, dtype=torch.bfloat16)
    )
    assert shrunk(one, off_where("rmsnorm", lambda x: True)) is one


def test_a_deadline_ends_it_with_what_was_found_so_far():
    start = example("rmsnorm", "bf16", (4,), 100)
    found = shrink(start, lambda each: True, deadline=0.0)
    assert (found.example, found.whole) == (start, False)


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_rank_of_a_value_puts_plain_before_short_before_signed_before_not_finite(dtype):
    info = torch.finfo(FORMATS[dtype].torch)
    step = info.smallest_normal * info.eps
    ascending = [1.0, 2.0, 4.0, 0.25, step, 1.5, 1.75, -1.0, -1.5, torch.inf, torch.nan]
    ranks = order.rank(torch.tensor(ascending, dtype=FORMATS[dtype].torch), 1.0).tolist()
    assert ranks == sorted(ranks)
    assert ranks[0] == 0
    assert min(ranks[1:]) > 0


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("raised ValueError: no (kernel.py:3)", "raised"),
        ("changes from run to run: 3 elements; output, row 0", "stability"),
        ("in a second call: input: 1 element overwritten", "stability"),
        ("depends on the batch: 1 element of 1 row", "batch"),
        ("rows 1 to 3 alone: raised ValueError: no", "batch"),
        ("input: 1 element overwritten, the first at row 0, column 0", "memory"),
        ("output has shape (3,), not (2,)", "returned"),
        ("residual: 3 of 9 are not the rounded sum", "residual"),
        ("2 of 3 rows: rstd is off; row 1 by +0.5", "values"),
    ],
)
def test_the_kind_of_a_reason(reason, kind):
    assert kinds.kind(reason) == kind


def test_a_failure_is_of_the_first_of_its_kinds():
    reasons = ["2 of 3 rows: rstd is off; row 1 by +0.5", "input: 1 element overwritten, the first at row 0, column 0"]
    assert kinds.first(reasons) == kinds.first(reasons[::-1]) == "memory"

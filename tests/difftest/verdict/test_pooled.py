"""The mean of many rows' rstd errors: what leans a little in every row is found on rows that tell their rstd."""

import numpy as np
import pytest
import torch

from difftest.cases import Request
from difftest.report import summary
from difftest.run.check import Result
from difftest.verdict import judge, pooled
from difftest.verdict.pooled import FEWEST, Sum
from reference.arithmetic import Fp32
from reference.contracts import contract_of

from .biased import SumTowardZero, run

NORMS = ("rmsnorm", "gemma_rmsnorm", "fused_add_rmsnorm", "gemma_fused_add_rmsnorm")


def near_ties(op, dtype, seed=0, rows=96):
    """The grid's case of these rows."""
    request = Request({op: contract_of(op)}, [dtype], [4096], seed=seed)
    return request.template(op, dtype, 4096, "near_ties", (rows,), weight_dtype="fp32")


def lanes(count):
    """Sums in so many lanes, in sequence, then a tree."""

    class Lanes(Fp32):
        def mean_square(self, row):
            squares = row.square().unflatten(-1, (-1, count)).numpy()
            total = torch.from_numpy(np.ascontiguousarray(np.add.accumulate(squares, axis=-2, dtype=np.float32)[..., -1, :]))
            while total.shape[-1] > 1:
                total = total[..., 0::2] + total[..., 1::2]
            return total / row.shape[-1]

    return Lanes


def verdict_of(kind, case):
    inputs = case.inputs()
    return judge(case.operator, inputs, run(kind, case.operator, inputs, case.contract), case.contract)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("op", [NORMS[0], *(pytest.param(op, marks=pytest.mark.slow) for op in NORMS[1:])])
def test_sums_rounded_toward_zero_lean_next_to_ties(op, dtype):
    found = verdict_of(SumTowardZero, near_ties(op, dtype))
    assert not found.conforms
    assert "leans to one side" in found.reasons[0]


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("count", [1, 8, 128, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 16, 32))])
def test_honest_sums_do_not_whose_rounding_leans_in_their_own_order(count, dtype):
    """Squares of 16-bit numbers round alike again and again: 33 * 2^-24 of rstd in a plain loop over bf16."""
    assert verdict_of(lanes(count), near_ties("rmsnorm", dtype)).conforms


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_each_row_tells_its_rstd_to_a_few_steps(dtype):
    found = verdict_of(Fp32, near_ties("rmsnorm", dtype)).statistics[pooled.STATISTIC]
    assert pooled.of_plain(found)[""].rows > 80
    assert abs(pooled.of_plain(found)[""].mean) < 1


def test_an_order_that_explains_fewer_rows_is_not_one_that_the_sums_are_kept_of(monkeypatch):
    told = iter([Sum(30, 90.0, 280.0), Sum(30, 3.0, 1.0)])
    monkeypatch.setattr(pooled, "of_case", lambda terms, rstd: next(told, Sum(29, 2.9, 1.0)))
    case = near_ties("rmsnorm", "bf16", rows=24)
    kept = verdict_of(Fp32, case).statistics[pooled.STATISTIC]
    assert [each["rows"] for each in kept.values()] == [30, 30]


def sum_of(mean, deviation, rows):
    return Sum(rows, rows * mean, rows * mean**2 + (rows - 1) * deviation**2)


def test_few_rows_say_nothing_and_many_say_the_bias():
    assert not sum_of(100.0, 1.0, FEWEST - 1).leans()
    assert not sum_of(pooled.BIAS, 1.0, 10_000).leans()
    assert sum_of(pooled.BIAS + 0.1, 1.0, 10_000).leans()
    assert sum_of(-3.5, 1.0, 96).leans()


def test_cases_that_lean_together_are_a_difference_of_the_run():
    case = near_ties("rmsnorm", "bf16")
    cases = [near_ties("rmsnorm", "bf16", seed) for seed in range(6)]

    def results(**sums):
        statistics = {pooled.STATISTIC: pooled.plain({"": sum_of(5.0, 1.0, 10), **sums})}
        return [Result(case, "x", "torch", (), statistics=statistics) for case in cases]

    assert summary.leanings(results()[:2]) == {}
    assert "on average over 60 rows" in summary.leanings(results())["rmsnorm", "bf16", case.spelling]
    assert summary.leanings(results(serial=sum_of(0.2, 1.0, 10))) == {}


def test_a_case_held_against_several_references_counts_once():
    statistics = {pooled.STATISTIC: pooled.plain({"": sum_of(5.0, 1.0, 12)})}
    result = Result(near_ties("rmsnorm", "bf16"), "x", "torch", (), statistics=statistics)
    assert summary.leanings([result] * 5) == {}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_no_honest_sum_is_called_wrong_over_many_seeds(dtype):
    kinds = [Fp32, *map(lanes, (1, 4, 8, 16, 32, 64, 128))]
    for seed in range(250):
        op, kind = NORMS[seed % 4], kinds[seed // 4 % len(kinds)]
        found = verdict_of(kind, near_ties(op, dtype, seed, rows=48))
        assert found.conforms, (seed, op, kind, found.reasons)

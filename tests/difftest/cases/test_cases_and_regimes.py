"""Cases are complete records, the generator covers what it says, and a regime's values are a function of the seed."""

import dataclasses
import itertools
import json
import sys

import pytest
import torch

from difftest.cases import Case, Request, generate, regimes, weights
from difftest.cases.draw import Draw
from reference.contracts import contract
from reference.formats import FORMATS, bits
from reference.operators import OPERATORS
from reference.rounding import ulp_of

EVERYTHING = Request({op: contract(op) for op in OPERATORS}, list(FORMATS), [1, 3, 111, 4096], extra=63)


def drawn(regime, op="rmsnorm", rows=8, width=64, dtype="bf16", seed=0):
    form = FORMATS[dtype]
    drawn = Draw(OPERATORS[op], contract(op), rows, width, form, torch.Generator())
    return regimes.draw(regime, drawn, form, seed)


def test_every_operator_dtype_width_and_regime_is_in_the_grid():
    found = {(c.op, c.dtype, c.width, c.regime) for c in generate(EVERYTHING) if c.origin == "grid"}
    wanted = {
        (op.name, dtype, width, regime)
        for op in OPERATORS.values()
        for dtype in FORMATS
        for width in EVERYTHING.widths
        for regime in regimes.names(op)
    }
    assert found == wanted


def test_random_cases_draw_the_parameters_that_an_operator_has_beside_eps():
    cases = generate(dataclasses.replace(EVERYTHING, contracts={"swigluoai_and_mul": contract("swigluoai_and_mul")}))
    found = {c.contract.parameters for c in cases if c.origin.startswith("random")}
    values = {(dict(each)["alpha"], dict(each)["limit"]) for each in found}
    assert values == set(itertools.product((1.702, 1.0), (7.0, 2.008544921875)))


def test_random_cases_differ_in_width_shape_layout_and_regime():
    cases = [c for c in generate(EVERYTHING) if c.origin.startswith("random")]
    assert len(cases) == EVERYTHING.extra
    assert {(c.op, c.dtype) for c in cases} == {(op, dtype) for op in OPERATORS for dtype in FORMATS}
    assert len({c.width for c in cases}) > 40
    assert {len(c.lead) for c in cases} == {0, 1, 2, 3}
    assert len({c.regime for c in cases}) > 6
    assert len({n for c in cases for _, n in c.padding}) > 2


@pytest.mark.skipif(sys.platform != "linux", reason="none are made elsewhere")
def test_rows_whose_positions_leave_32_bits_are_in_one_case_of_each_operator_and_dtype():
    asked = Request({op: contract(op) for op in OPERATORS}, list(FORMATS), [1, 111, 4096], strength=1)
    found = [case for case in generate(asked) if case.origin == "far"]
    assert [(case.op, case.dtype) for case in found] == list(itertools.product(OPERATORS, FORMATS))
    for case in found:
        strides = [case.width + elements for _, elements in case.padding]
        assert min(strides) > 2**31
        assert len(set(strides)) == len(strides) == 2  # two rows' buffers, which do not share one
        assert (case.rows - 1) * min(strides) > 2**32


@pytest.mark.parametrize("given", [{"device": "cuda"}, {"rows": [1, 2]}, {"widths": [4096]}, {"strength": 0}])
def test_no_such_case_where_its_memory_would_be_taken_or_another_size_was_asked_for(given):
    asked = dataclasses.replace(Request({"rmsnorm": contract("rmsnorm")}, ["bf16"], [111], strength=1), **given)
    assert not [case for case in generate(asked) if case.origin == "far"]


@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_a_regime_asked_for_alone_is_drawn_for_the_operators_that_have_what_it_needs(regime):
    cases = list(generate(dataclasses.replace(EVERYTHING, regimes=[regime])))
    assert {case.regime for case in cases} == {regime}
    assert {case.op for case in cases} == {op for op in OPERATORS if regime in regimes.names(OPERATORS[op])}


def test_one_request_gives_the_same_cases_and_another_seed_gives_others():
    assert list(generate(EVERYTHING)) == list(generate(EVERYTHING))
    other = dataclasses.replace(EVERYTHING, seed=1)
    assert {c.seed for c in generate(other)}.isdisjoint(c.seed for c in generate(EVERYTHING))


def test_a_case_keeps_its_seed_in_a_narrower_request():
    narrow = dataclasses.replace(
        EVERYTHING, contracts={"rmsnorm": contract("rmsnorm")}, dtypes=["bf16"], widths=[111], rows=[8], extra=0
    )
    every = set(generate(EVERYTHING))
    assert all(case in every for case in generate(narrow))


def test_a_case_survives_json():
    for case in generate(EVERYTHING):
        assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_a_record_of_the_first_schema_is_the_case_that_it_was():
    first = {"padding": 3, "out_given": False, "schema": "numba-kernels/difftest-case/1"}
    case = Case("fused_add_rmsnorm", "bf16", (4,), 64, "normal", 1, contract("fused_add_rmsnorm"))
    record = {key: value for key, value in case.to_json().items() if key not in ("out", "weights")}
    assert Case.from_json({**record, **first}) == dataclasses.replace(case, padding=(("input", 3), ("residual", 3)))
    case = dataclasses.replace(case, op="rmsnorm", contract=contract("rmsnorm"))
    record = {**record, "op": "rmsnorm", "contract": "W0"}
    given = dataclasses.replace(case, padding=(("input", 3), ("output", 3)), out="given")
    assert Case.from_json({**record, **first, "out_given": True}) == given
    assert Case.from_json({**record, **first}) == dataclasses.replace(case, padding=(("input", 3),))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weights": "heavy"}, "weights 'heavy'"),
        ({"out": "elsewhere"}, "out 'elsewhere' of rmsnorm is not one of none, given, input"),
        ({"padding": {"output": 3}}, "padding of output: the buffers of rows are input"),
        ({"padding": {"input": -3}}, "-3"),
        ({"op": "layernorm"}, "layernorm"),
        ({"dtype": "fp8"}, "fp8"),
        ({"regime": "gate_sweep"}, "gate_sweep"),
        ({"width": 0}, "width 0"),
        ({"lead": [-1]}, "-1"),
        ({"contract": "S1"}, "S1"),
    ],
)
def test_a_record_that_is_no_case_is_refused_with_the_reason(change, said):
    record = next(c for c in generate(EVERYTHING) if c.op == "rmsnorm").to_json()
    with pytest.raises(ValueError, match=said):
        Case.from_json({**record, **change})


@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_a_regime_draws_the_same_bits_for_a_seed(regime):
    for op, dtype in itertools.product(OPERATORS, FORMATS):
        if not regimes.REGIMES[regime].needs(OPERATORS[op]):
            continue
        one, two = drawn(regime, op, dtype=dtype, seed=5), drawn(regime, op, dtype=dtype, seed=5)
        assert one.keys() == set(OPERATORS[op].inputs)
        assert all(torch.equal(bits(one[name]), bits(two[name])) for name in one)


def effective(family, op, form, seed, width=64):
    """Stored values and what they come to with the bias, in float64."""
    case = Case(op, "bf16", (2,), width, "normal", seed, contract(op), weights=family, weight_dtype=form)
    weight = case.inputs()["weight"]
    assert torch.equal(bits(weight), bits(case.inputs()["weight"]))
    return weight.double(), weight.double() + OPERATORS[op].weight_bias


@pytest.mark.parametrize("op", ["rmsnorm", "gemma_rmsnorm"])
@pytest.mark.parametrize("form", FORMATS)
def test_each_family_of_weights_holds_what_it_is_there_for(op, form):
    for seed in range(5):
        _, near_zero = effective("around_zero", op, form, seed)
        assert near_zero.mean().abs() < 0.2
        assert near_zero.std() > 0.1
        assert (effective("negative", op, form, seed)[1] <= 0).all()
        stored, large = effective("large", op, form, seed)
        assert large.abs().min() >= 3 - 1e-6
        assert large.abs().max() > 1000
        assert set(large.sign().tolist()) == {-1.0, 1.0}
        assert bool(stored.abs().max() > 65504) == (form == "fp32")
        sizes = effective("outlier", op, form, seed)[1].abs().sort().values
        assert sizes[-1] > 3 * sizes[-2]
        stored, zeros = effective("zeros", op, form, seed)
        assert (zeros == 0).any()
        assert set(stored[stored == 0].signbit().tolist()) == {False, True}
        stored, _ = effective("subnormal", op, form, seed)
        smallest = torch.finfo(FORMATS[form].torch).smallest_normal
        assert ((stored != 0) & (stored.abs() < smallest)).any()
        assert (stored >= smallest).any()
        stored, _ = effective("inf_nan", op, form, seed)
        assert [int(stored.isnan().sum()), int((stored == float("inf")).sum()), int((stored == -float("inf")).sum())] == [1, 1, 1]
        assert (~effective("inf_nan", op, form, seed, 1)[0].isfinite()).sum() == 1


def test_an_operator_without_weights_has_no_family_of_them_but_the_usual():
    assert weights.names(OPERATORS["rmsnorm"]) == tuple(weights.WEIGHTS)
    assert weights.names(OPERATORS["silu_and_mul"]) == ("usual",)


def test_the_rows_of_a_seed_are_the_same_whatever_the_weights():
    case = Case("rmsnorm", "bf16", (3,), 64, "inf_nan", 1, contract("rmsnorm"))
    want = bits(case.inputs()["input"])
    for family in weights.WEIGHTS:
        assert torch.equal(bits(dataclasses.replace(case, weights=family).inputs()["input"]), want)


def test_drawing_leaves_the_global_random_stream_alone():
    before = torch.get_rng_state()
    drawn("normal")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("op", ["rmsnorm", "gemma_rmsnorm"])
@pytest.mark.parametrize("regime", regimes.names(OPERATORS["rmsnorm"]))
def test_no_weight_is_all_ones_after_its_bias(op, regime):
    weight = drawn(regime, op)["weight"].float() + OPERATORS[op].weight_bias
    assert not torch.equal(weight, torch.ones_like(weight))


def test_small_mean_squares_are_small_in_the_sum_that_is_normalised():
    values = drawn("small_mean_square", "fused_add_rmsnorm", rows=64, width=256, dtype="fp32")
    mean_square = (values["input"] + values["residual"]).square().mean(1)
    assert 1.9e-4 < float(mean_square.min()) <= float(mean_square.max()) < 4.1e-4


def test_magnitudes_reach_from_1e_minus_4_to_1e4_in_both_signs():
    values = drawn("magnitudes", rows=64, width=256, dtype="fp32")["input"]
    assert 1e-4 <= float(values.abs().min()) < 2e-4
    assert 5e3 < float(values.abs().max()) <= 1e4
    assert bool((values < 0).any() and (values > 0).any())


@pytest.mark.parametrize("dtype", FORMATS)
def test_subnormals_are_subnormal_and_not_all_zero(dtype):
    values = drawn("subnormal", dtype=dtype, width=255)["input"]
    subnormal = (values != 0) & (values.abs() < torch.finfo(values.dtype).smallest_normal)
    assert float(subnormal.float().mean()) > 0.5
    assert bool((values.abs() >= torch.finfo(values.dtype).smallest_normal).any())


def test_squares_of_the_overflow_regime_pass_fp16_and_the_values_do_not():
    values = drawn("square_overflow", dtype="fp16")["input"]
    assert bool(values.isfinite().all())
    assert bool((values.square().isinf()).any(1).all())
    assert float(values[0, 0]) == 256.0


def test_special_values_stay_in_their_rows_and_every_fourth_row_has_none():
    values = drawn("inf_nan", rows=8)["input"]
    assert (~values.isfinite()).sum(1).tolist() == [1, 1, 1, 0, 1, 1, 1, 0]
    assert bool(values[0].isnan().any() and (values[1] == float("inf")).any() and (values[2] == float("-inf")).any())


def test_a_weight_has_special_values_only_where_a_row_has_room_for_others():
    assert drawn("inf_nan", width=8)["weight"].isfinite().sum() == 6
    assert drawn("inf_nan", width=7)["weight"].isfinite().all()


def test_sums_and_products_of_the_range_limit_pass_fp16_and_their_squares_stay_in_fp32():
    half = drawn("range_limit", "fused_add_rmsnorm", rows=8, dtype="fp16")
    assert half["input"].isfinite().all()
    assert half["residual"].isfinite().all()
    assert (half["input"] + half["residual"]).isinf().any()
    gate, up = drawn("range_limit", "silu_and_mul", rows=8, dtype="fp16")["input"].chunk(2, 1)
    assert (gate * up).isinf().any()
    brain = drawn("range_limit", "fused_add_rmsnorm", rows=8, width=4096, dtype="bf16")
    total = brain["input"].float() + brain["residual"].float()
    assert total.abs().max() > 1e14
    assert total.square().sum(1).isfinite().all()


def test_zeros_have_both_signs_in_every_pair():
    values = drawn("zeros", "fused_add_rmsnorm", rows=8)
    signs = 2 * values["input"].signbit().int() + values["residual"].signbit().int()
    assert not values["input"].any()
    assert signs.unique().tolist() == [0, 1, 2, 3]


def test_saturating_gates_are_large_in_both_signs():
    gate, up = drawn("saturating_gates", "silu_and_mul")["input"].float().chunk(2, 1)
    assert float(gate.abs().min()) >= 8.0
    assert bool((gate < 0).any() and (gate > 0).any())
    assert float(up.abs().max()) < 8.0


def test_the_rounding_row_is_the_published_one():
    values = drawn("rounding_row", "fused_add_rmsnorm", rows=1, width=4)
    assert values["input"].tolist() == [[-0.5625, -0.078125, -0.109375, -1.0]]
    assert values["residual"].tolist() == [[4.25, 7.5, -6.5, 4.0]]
    assert values["weight"].tolist() == [1.484375, 1.078125, 1.375, 1.375]
    half = drawn("rounding_row", "fused_add_rmsnorm", rows=1, width=2, dtype="fp16")
    assert half["input"].tolist() == [[1.0, 2.0]]
    assert half["residual"].tolist() == [[2.0**-11, 0.0]]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "gemma_rmsnorm"])
def test_every_exact_row_of_the_ties_has_a_mean_square_of_a_power_of_4_and_many_results_that_are_ties(op, dtype):
    values = drawn("ties", op, rows=8, width=4096, dtype=dtype)
    total = sum(values[name].double() for name in OPERATORS[op].rows)
    rows = total[::2] if "residual" in values else total
    mean_square = rows.square().mean(-1, keepdim=True)
    assert all(value == 4.0 ** round(float(value.log2()) / 2) for value in mean_square)
    exact = rows / mean_square.sqrt() * (values["weight"].double() + OPERATORS[op].weight_bias)
    steps = exact / ulp_of(exact, FORMATS[dtype].torch)
    assert ((steps - steps.floor()) == 0.5).double().mean() > 0.3
    if "residual" in values:
        steps = total[1::2] / ulp_of(total[1::2], FORMATS[dtype].torch)
        assert ((steps - steps.floor()) == 0.5).all()


def test_the_ties_are_called_with_eps_0_whatever_is_asked_for():
    cases = list(generate(dataclasses.replace(EVERYTHING, regimes=["ties"])))
    assert {case.contract.eps for case in cases if "norm" in case.op} == {0.0}

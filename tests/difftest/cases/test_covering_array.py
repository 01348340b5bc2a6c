"""Every pair of values of two dimensions occurs in the cases of each operator and dtype: counted here from the cases alone."""

import itertools

import pytest

from difftest.cases import Request, generate, regimes, weights
from difftest.cases.array import Coverage
from difftest.cases.dimensions import dimensions
from reference.contracts import contract
from reference.formats import FORMATS
from reference.operators import OPERATORS

WIDTHS = [1, 3, 111, 4096]


def power(number):
    return bin(number).count("1") == 1


# What a width is, written down anew.
CLASSES = {
    "one": lambda w: w == 1,
    "odd": lambda w: w % 2 == 1 and w > 4 and not power(w - 1) and not power(w + 1),
    "2^k - 1": lambda w: w > 2 and power(w + 1),
    "2^k": lambda w: w > 2 and power(w),
    "2^k + 1": lambda w: w > 4 and power(w - 1),
    "8, not 16": lambda w: w % 8 == 0 and w % 16 != 0,
    "1024": lambda w: w % 1024 == 0,
    "below a warp": lambda w: 2 <= w <= 31,
    "beyond a block": lambda w: 1025 <= w <= 4096,
    "above 4096": lambda w: w > 4096,
    "asked for": lambda w: w in WIDTHS,
}


def values_of(case):
    """Every dimension of a case with the values that it has."""
    op = OPERATORS[case.op]
    found = {
        "rows": {case.rows},
        "rank": {len(case.lead) + 1},
        "width": {name for name, holds in CLASSES.items() if holds(case.width)},
        "regime": {case.regime},
        "out": {case.out},
    }
    if op.vectors:
        found |= {"weights": {case.weights}, "weight dtype": {case.weight_dtype or case.dtype}}
    for parameter in op.parameters:
        found[parameter.name] = {case.contract.value(parameter.name)}
    rows = [*op.rows, *(() if op.mutated else ("output",))]
    found |= {f"padding of {name}": {dict(case.padding).get(name, 0)} for name in rows}
    found |= {f"misaligned {name}": {name in case.misaligned} for name in (*rows, *op.vectors)}
    return found


def wanted(op, dtype):
    """Every dimension with its values."""
    declared = OPERATORS[op]
    rows = [*declared.rows, *(() if declared.mutated else ("output",))]
    out = {"none"} if declared.mutated else {"none", "given", *({"input"} if declared.vectors else ())}
    found = {
        "rows": {0, 1, 2, 3, 7, 24, 31, 33, 257},
        "rank": {1, 2, 3, 4},
        "width": set(CLASSES),
        "regime": set(regimes.names(declared)),
        "out": out,
    }
    if declared.vectors:
        found |= {"weights": set(weights.WEIGHTS), "weight dtype": {dtype, "fp32"}, "eps": {1e-6, 1e-5, 1e-3, 1e-8}}
    if op == "swigluoai_and_mul":
        found |= {"alpha": {1.702, 1.0}, "limit": {7.0, 2.008544921875}}
    found |= {f"padding of {name}": {0, 3, 8} for name in rows}
    found |= {f"misaligned {name}": {True, False} for name in (*rows, *declared.vectors)}
    return found


def impossible(one, a, other, b):
    """The written exceptions."""
    pair = {one: a, other: b}
    if pair.get("rank") == 1 and (pair.get("rows", 1) != 1 or any(n.startswith("padding") and v for n, v in pair.items())):
        return True
    if pair.get("rows") == 257 and pair.get("width") == "above 4096":
        return True  # a million elements
    if pair.get("regime") == "ties" and "eps" in pair:
        return True  # made for eps 0
    return pair.get("out", "given") != "given" and bool(pair.get("padding of output") or pair.get("misaligned output"))


def says_nothing(case):
    """The dimensions whose value leaves nothing of the others to see."""
    found = {"rows"} if case.rows == 0 else set()
    found |= {"regime"} if case.regime == "zeros" else set()
    narrow = case.weights in ("zeros", "inf_nan") and case.width < 8
    return found | ({"weights"} if case.weights == "subnormal" or narrow else set())


FEW = ("fused_add_rmsnorm", "swigluoai_and_mul")


@pytest.mark.parametrize(
    ("op", "few_forms"),
    [
        pytest.param(op, few_forms, marks=pytest.mark.slow if op not in FEW or (few_forms and op != FEW[0]) else ())
        for op in OPERATORS
        for few_forms in (False, True)
    ],
)
def test_every_pair_of_values_that_can_occur_together_occurs(op, few_forms):
    for dtype in FORMATS:
        request = Request({op: contract(op)}, [dtype], WIDTHS, widest=5503, few_forms=few_forms, strength=2)
        seen = set()
        for case in generate(request):
            has, nothing = values_of(case), says_nothing(case)
            for one, other in itertools.combinations(sorted(has), 2):
                if nothing <= {one, other}:
                    seen |= {(one, a, other, b) for a in has[one] for b in has[other]}
        every = wanted(op, dtype)
        missing = [
            (one, a, other, b)
            for one, other in itertools.combinations(sorted(every), 2)
            for a in every[one]
            for b in every[other]
            if not impossible(one, a, other, b) and (one, a, other, b) not in seen
        ]
        assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize("op", ["rmsnorm", "silu_and_mul"])
def test_strength_3_covers_every_triple(op):
    request = Request({op: contract(op)}, ["bf16"], [1, 3, 111], widest=200, strength=3)
    coverage = Coverage(dimensions(request, op, "bf16"), 3)
    for case in generate(request):
        coverage.mark(case)
    assert coverage.covered == len(coverage.required) > 9_000


@pytest.mark.parametrize("seed", [0, 1])
def test_strength_1_has_every_value_once_in_few_cases(seed):
    for op, dtype in itertools.product(("fused_add_rmsnorm", "silu_and_mul"), FORMATS):
        request = Request({op: contract(op)}, [dtype], WIDTHS, widest=5503, strength=1, seed=seed)
        cases = list(generate(request))
        coverage = Coverage(dimensions(request, op, dtype), 1)
        for case in cases:
            coverage.mark(case)
        assert coverage.covered == len(coverage.required) > 30
        assert sum(case.origin.startswith("array") for case in cases) < 20


def test_a_case_that_hides_its_other_values_covers_what_includes_the_one_that_hides_alone():
    request = Request({"rmsnorm": contract("rmsnorm")}, ["bf16"], [8], strength=2)

    def covered(case):
        coverage = Coverage(dimensions(request, "rmsnorm", "bf16"), 2)
        assert coverage.mark(case)
        return {frozenset(coverage.values[n][0] for n in pair) for pair in coverage.required if not coverage.left[pair]}

    names = covered(request.template("rmsnorm", "bf16", 8, "normal", (0,)))
    assert len(names) > 5
    assert all("rows" in pair for pair in names)
    assert covered(request.template("rmsnorm", "bf16", 8, "zeros", (0,))) == {frozenset({"rows", "regime"})}


def test_widths_and_rows_bound_every_case():
    request = Request({op: contract(op) for op in OPERATORS}, ["bf16"], [3, 64], rows=[5, 9], extra=40, strength=2)
    cases = list(generate(request))
    assert {case.rows for case in cases} == {5, 9}
    assert max(case.width for case in cases) <= 64
    assert {len(case.lead) for case in cases} == {1, 2, 3}


@pytest.mark.parametrize("op", OPERATORS)
def test_a_regime_that_is_made_for_one_eps_can_be_asked_for_alone(op):
    cases = list(generate(Request({op: contract(op)}, ["bf16"], [3, 64], regimes=["ties"], strength=2)))
    assert {case.regime for case in cases} == {"ties"}
    assert len({case.contract.eps for case in cases}) == 1
    assert len(cases) > 20


def test_one_request_gives_the_same_array_and_another_seed_another():
    def array(seed):
        request = Request({"rmsnorm": contract("rmsnorm")}, ["bf16"], WIDTHS, widest=5503, seed=seed, strength=2)
        return [case for case in generate(request) if case.origin.startswith("array")]

    assert array(0) == array(0)
    assert {case.seed for case in array(0)}.isdisjoint(case.seed for case in array(1))


def test_shapes_hold_planes_of_a_batch_and_a_padded_row_differs_from_its_neighbours():
    cases = list(
        generate(Request({"fused_add_rmsnorm": contract("fused_add_rmsnorm")}, ["bf16"], WIDTHS, widest=5503, strength=2))
    )
    assert any(len(case.lead) == 3 and min(case.lead) > 1 for case in cases)
    assert any(len(case.lead) == 2 and min(case.lead) > 1 for case in cases)
    assert any(len({case.padding_of(name) for name in ("input", "residual")}) == 2 for case in cases)

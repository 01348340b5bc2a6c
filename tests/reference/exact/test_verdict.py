"""The verdict: correct fp32 kernels pass, whatever liberties they take; one fault is enough to fail."""

import itertools

import pytest
import torch

from difftest.verdict import judge
from reference.arithmetic import evaluate
from reference.contracts import Contract, contract, corners
from reference.exact.oracle import correctly_rounded
from reference.operators import operator

from .rows import DTYPES, GATED, NORMS, ROOTS, SUMS, inputs_of, run

WIDTHS = (1, 3, 111, 512, 4096)
BF16 = torch.bfloat16
KERNELS = tuple(itertools.product(SUMS, ROOTS, (False, True), (False, True)))


def no_false_alarm(seeds, rows=2):
    """One seed: every width, dtype, norm contract and gated operator, each with another of the 80 correct kernels."""
    judged = 0
    for seed in seeds:
        for turn, (width, dtype) in enumerate(itertools.product(WIDTHS, DTYPES.values())):
            total, root, reciprocal, late = KERNELS[(seed * 15 + turn) % len(KERNELS)]
            op = NORMS[(seed + turn) % len(NORMS)]
            scale = (1.0, 0.03, 30.0)[(seed + turn) % 3]
            weight_dtype = torch.float32 if (seed + turn) % 5 == 0 else None
            inputs = inputs_of(op, rows, width, dtype, seed, scale, weight_dtype)
            for case in corners(op):
                outputs = run(op, inputs, case, total=total, root=root, reciprocal=reciprocal, late=late)
                verdict = judge(op, inputs, outputs, case)
                assert verdict.conforms, (op, case, width, dtype, total, root, reciprocal, late, verdict.reasons)
                judged += 1
            op = GATED[(seed + turn) % len(GATED)]
            inputs = inputs_of(op, rows, width, dtype, seed, (1.0, 4.0, 40.0)[turn % 3])
            for case in corners(op):
                for outputs in (evaluate(op, inputs, case), torchs(op, inputs, case)):
                    verdict = judge(op, inputs, outputs, case)
                    assert verdict.conforms, (op, case, width, dtype, verdict.reasons)
                    judged += 1
    return judged


def torchs(op, inputs, case):
    """torch's own activation in fp32, the textbook form included."""
    gate, up = inputs["input"].float().chunk(2, -1)
    activated = {
        "silu_and_mul": torch.nn.functional.silu,
        "gelu_and_mul": lambda g: 0.5 * g * (1 + torch.erf(g * 0.5**0.5)),
        "gelu_tanh_and_mul": lambda g: torch.nn.functional.gelu(g, approximate="tanh"),
    }[op](gate)
    if case.rounds_activation:
        activated = activated.to(inputs["input"].dtype).float()
    return {"output": (activated * up).to(inputs["input"].dtype)}


def test_correct_kernels_raise_no_alarm():
    no_false_alarm(range(4))


@pytest.mark.slow
def test_correct_kernels_raise_no_alarm_over_a_thousand_seeds():
    assert no_false_alarm(range(1000)) > 100_000


@pytest.mark.parametrize("total", SUMS)
@pytest.mark.parametrize("regime", ["constant", "one outlier", "two values", "zeros", "rows alike", "subnormal", "huge"])
def test_awkward_rows_raise_no_alarm(regime, total):
    op, case, generator = "rmsnorm", contract("rmsnorm"), torch.Generator().manual_seed(3)
    for dtype, width in itertools.product(DTYPES.values(), (96, 4096)):
        rows = torch.randn(24, width, generator=generator)
        if regime == "constant":
            rows = rows[:, :1].expand(-1, width).clone()
        if regime == "one outlier":
            rows = rows.abs().clamp(0.5, 1.0)
            rows[:, 0] = 10_000.0
        if regime == "two values":
            rows = torch.where(rows > 0, 0.1, 0.3) * torch.linspace(1, 2, 24)[:, None]
        if regime == "zeros":
            rows[::2] = 0
            rows[:, ::3] = 0
        if regime == "rows alike":
            rows = rows[:1].expand(24, -1).clone()
        if regime == "subnormal":
            rows = rows * (1e-6 if dtype is torch.float16 else 1e-39)
        if regime == "huge":
            rows = rows * (1e4 if dtype is torch.float16 else 1e30)
        inputs = {"input": rows.to(dtype), "weight": torch.linspace(0.5, 2, width).to(dtype)}
        verdict = judge(op, inputs, run(op, inputs, case, total=total), case)
        assert verdict.conforms, (dtype, width, verdict.reasons)


FAULTS = {
    "drop one element": "rstd",
    "drop the middle element": "rstd",
    "divide by width + 1": "rstd is off",
    "rstd in bf16": "rstd is off",
    "rstd in fp16": "rstd is off",
    "weight reversed": "elements lie where",
    "zeros": "elements lie where",
    "truncates": "no single rstd",
    "eps 1e-5": "rstd is off",
    "no eps": "rstd is off",
}


@pytest.mark.parametrize("code", ["R0W0", "R1W0", "R0W1", "R1W1"])
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_at_width_4096_in_bf16_is_caught_whatever_the_seed(fault, code):
    if fault == "truncates" and code.endswith("W1"):
        pytest.skip("the faulty store is W0's")
    case, scale = contract("fused_add_rmsnorm", code), 0.5**0.5
    if "eps" in fault:
        scale *= 1e-3**0.5  # mean square 1e-3
    for seed in range(1 if code.endswith("W1") else 3):
        inputs = inputs_of("fused_add_rmsnorm", 24, 4096, BF16, seed, scale)
        verdict = judge("fused_add_rmsnorm", inputs, run("fused_add_rmsnorm", inputs, case, fault=fault), case)
        assert not verdict.conforms
        assert any(FAULTS[fault] in reason for reason in verdict.reasons), verdict.reasons


@pytest.mark.parametrize("dtype", [BF16, torch.float16])
@pytest.mark.parametrize("op", NORMS + GATED)
def test_every_contract_is_told_from_every_other(op, dtype):
    inputs = inputs_of(op, 8, 512, dtype)
    for made, held in itertools.permutations(corners(op), 2):
        assert not judge(op, inputs, evaluate(op, inputs, made), held).conforms


def test_a_wrong_eps_shows_on_unit_rows_by_their_leaning_alone():
    """9e-6 / 2 is within a row's bound, and no fp32 kernel is off by it in every row alike."""
    inputs = inputs_of("rmsnorm", 32, 4096, BF16)
    case = contract("rmsnorm")
    assert judge("rmsnorm", inputs, run("rmsnorm", inputs, case), case).conforms
    verdict = judge("rmsnorm", inputs, run("rmsnorm", inputs, case, fault="eps 1e-5"), case)
    assert len(verdict.reasons) == 1
    assert "on average over 32 rows" in verdict.reasons[0]


@pytest.mark.slow
def test_an_element_dropped_from_131072_shows_by_the_rows_leaning():
    inputs = inputs_of("rmsnorm", 16, 131072, BF16)
    case = contract("rmsnorm")
    assert judge("rmsnorm", inputs, run("rmsnorm", inputs, case), case).conforms
    assert not judge("rmsnorm", inputs, run("rmsnorm", inputs, case, fault="divide by width + 1"), case).conforms


def with_rstd_off_by(inputs, error):
    """The right output, had rstd been off by that share of fp32's bound."""
    from reference.exact.attainable import norm_rstd_error
    from reference.exact.terms import terms as norm_terms

    terms = norm_terms(operator("rmsnorm"), inputs, contract("rmsnorm"))
    value = terms.hidden * terms.rstd * (1 + error * norm_rstd_error(terms)) * terms.weight
    return {"output": value.float().to(terms.storage)}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("width", [111, 4096])
def test_the_bound_on_rstd_is_neither_too_tight_nor_vacuous(width, dtype):
    inputs = inputs_of("rmsnorm", 4, width, dtype)
    inputs["input"][:, 0] = 20.0  # such rows' errors are no matter of chance: the bound alone counts
    resolution = {BF16: 2.0, torch.float16: 1.0, torch.float32: 0.2}[dtype] * (1 if width > 1000 else 30)
    for side in (-1, 1):
        assert judge("rmsnorm", inputs, with_rstd_off_by(inputs, 0.97 * side), contract("rmsnorm")).conforms
        beyond = with_rstd_off_by(inputs, (1 + resolution) * side)
        assert not judge("rmsnorm", inputs, beyond, contract("rmsnorm")).conforms


def test_more_differing_elements_than_rounding_explains_are_a_reason():
    """Every row off by 90 % of its bound, half of them either way: no row fails, none leans, but far too many differ."""
    inputs = inputs_of("rmsnorm", 128, 4096, BF16)
    alternating = torch.tensor([0.9, -0.9]).repeat(64)[:, None]
    verdict = judge("rmsnorm", inputs, with_rstd_off_by(inputs, alternating), contract("rmsnorm"))
    assert len(verdict.reasons) == 1
    assert "are not the correctly rounded value" in verdict.reasons[0]


def test_the_rate_of_off_by_one_elements_is_a_few_in_a_million():
    inputs = inputs_of("fused_add_rmsnorm", 64, 4096, BF16)
    for case in corners("fused_add_rmsnorm"):
        verdict = judge("fused_add_rmsnorm", inputs, evaluate("fused_add_rmsnorm", inputs, case), case)
        assert verdict.statistics["differing_rate"] < 4e-5
        assert verdict.statistics["explained"] < 1e-3 * verdict.statistics["elements"]


def test_one_bit_of_the_residual_is_a_reason():
    inputs, case = inputs_of("fused_add_rmsnorm", 2, 64, BF16), contract("fused_add_rmsnorm")
    outputs = evaluate("fused_add_rmsnorm", inputs, case)
    outputs["residual"].view(torch.int16)[1, 5] ^= 1
    verdict = judge("fused_add_rmsnorm", inputs, outputs, case)
    assert verdict.statistics["residual_mismatches"] == 1
    assert "row 1, column 5" in verdict.reasons[0]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", NORMS + GATED)
def test_one_wrong_element_is_a_reason(op, dtype):
    inputs, case = inputs_of(op, 8, 512, dtype), contract(op)
    output = evaluate(op, inputs, case)["output"]
    for row, column in ((0, 0), (3, 200), (7, 511)):
        outputs = {**evaluate(op, inputs, case), "output": output.clone()}
        outputs["output"][row, column] *= 1.02
        assert not judge(op, inputs, outputs, case).conforms


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("op", NORMS)
def test_zeros_do_not_conform_however_small_the_right_values_are(op, dtype):
    """The right values are below 4e-6, far below every published tolerance."""
    inputs, case = inputs_of(op, 4, 64, dtype), contract(op)
    inputs["weight"] = torch.full((64,), 1e-6) - case.weight_bias  # fp32: a 16-bit -1 + 1e-6 would be -1
    outputs = evaluate(op, inputs, case)
    assert 0 < float(outputs["output"].abs().max()) < 4e-6
    assert judge(op, inputs, outputs, case).conforms
    assert not judge(op, inputs, {**outputs, "output": torch.zeros_like(outputs["output"])}, case).conforms


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("op", NORMS + GATED)
def test_a_non_finite_output_from_finite_inputs_is_a_reason(op, bad):
    inputs, case = inputs_of(op, 3, 40, BF16), contract(op)
    outputs = evaluate(op, inputs, case)
    outputs["output"][1, 7] = bad
    assert not judge(op, inputs, outputs, case).conforms


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("op", NORMS + GATED)
def test_non_finite_inputs_are_compared_by_class(op, bad):
    inputs = inputs_of(op, 3, 40, BF16)
    inputs["input"][1, 7] = bad
    for case in corners(op):
        outputs = evaluate(op, inputs, case)
        verdict = judge(op, inputs, outputs, case)
        assert verdict.conforms, verdict.reasons
        assert verdict.statistics["classes"] > 0 or bad == -float("inf")
    if bad == -float("inf"):
        return  # act(-Inf) is NaN in one form and 0 in another
    outputs["output"][1, 7] = 1.0
    assert not judge(op, inputs, outputs, case).conforms


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("width", [8, 4096])
def test_a_row_whose_sum_of_squares_overflows_vanishes_or_is_right(width):
    """Mean squares above 1e30: zero as a whole (rstd of Inf), NaN as a whole (Inf - Inf), or as if nothing overflowed."""
    inputs, case = inputs_of("rmsnorm", 3, width, torch.float32, scale=1e30), contract("rmsnorm")
    right = correctly_rounded("rmsnorm", inputs, case).outputs["output"]
    for share, conforms in ((0.0, True), (1.0, True), (NAN, True), (0.5, False), (1.0001, False), (10.0, False)):
        assert judge("rmsnorm", inputs, {"output": share * right}, case).conforms == conforms, share
    halved = right.clone()
    halved[:, : width // 2] = 0.0
    assert not judge("rmsnorm", inputs, {"output": halved}, case).conforms


@pytest.mark.parametrize("op", ["rmsnorm", "gemma_rmsnorm", "fused_add_rmsnorm"])
def test_finite_elements_of_a_row_with_an_inf_are_zeros_with_their_sign(op):
    inputs = inputs_of(op, 3, 64, BF16)
    inputs["input"][1, 7] = INF
    for case in corners(op):
        outputs = evaluate(op, inputs, case)
        assert judge(op, inputs, outputs, case).conforms

        def changed(columns, value, outputs=outputs, case=case):
            output = outputs["output"].clone()
            output[1, columns] = value
            return judge(op, inputs, {**outputs, "output": output}, case)

        assert "are not 0, which rstd is" in changed(3, 42.0).reasons[0]
        other = changed(3, -outputs["output"][1, 3])
        assert other.conforms if "gemma" in op else "wrong sign" in other.reasons[0]  # 0 * w + 0: the sign is free
        assert not changed(3, NAN).conforms
        assert not changed(7, 0.0).conforms
        assert changed(slice(None), NAN).conforms  # Kahan's and Welford's


def test_rows_with_a_nan_are_all_nan_and_so_are_zeros_without_an_eps():
    inputs, case = inputs_of("rmsnorm", 3, 64, BF16), contract("rmsnorm", eps=0.0)
    inputs["input"][0, 5], inputs["input"][1] = NAN, 0.0
    outputs = evaluate("rmsnorm", inputs, case)
    assert judge("rmsnorm", inputs, outputs, case).conforms
    for row in (0, 1):
        output = outputs["output"].clone()
        output[row, 9] = 0.0
        assert "another class" in judge("rmsnorm", inputs, {"output": output}, case).reasons[0]


@pytest.mark.parametrize("op", NORMS + GATED)
def test_a_zero_of_the_other_sign_is_a_reason(op):
    """By the signs of the row and of the weight or `up`; where a bias or a tail that cancels leaves it free, it is."""
    inputs = inputs_of(op, 4, 64, BF16)
    for name in operator(op).rows:
        inputs[name] = 0.0 * inputs[name]
    for case in corners(op):
        outputs = evaluate(op, inputs, case)
        verdict = judge(op, inputs, outputs, case)
        assert verdict.conforms, verdict.reasons
        positive = {**outputs, "output": outputs["output"].abs()}
        negative = {**outputs, "output": -outputs["output"].abs()}
        for wrong in (positive, negative):
            verdict = judge(op, inputs, wrong, case)
            if "gemma" in op:  # h * w + h: the sign of a zero sum is free
                assert verdict.conforms
            else:
                assert "zeros have the wrong sign" in verdict.reasons[0]
                assert verdict.statistics["zero_signs"] > 50


def test_a_subnormal_result_is_rounded_coarsely_and_says_nothing_of_rstd():
    """A product of normal factors 4.9e-6 below a tie of bf16's subnormals is that tie in fp32, where steps are 2^-149."""
    case, row = contract("rmsnorm"), torch.ones(1, 128)
    row[0, 0] = 2.0**-13
    weight = 1.5 * 2.0**-120 * (row.double().square().mean() + 1e-6).sqrt() * (1 - 4.9e-6)
    inputs = {"input": row.bfloat16(), "weight": weight.float().expand(128).contiguous()}
    outputs = evaluate("rmsnorm", inputs, case)
    assert outputs["output"][0, 0] == 2 * 2.0**-133
    assert judge("rmsnorm", inputs, outputs, case).conforms
    outputs["output"][0, 0] = 3 * 2.0**-133
    assert not judge("rmsnorm", inputs, outputs, case).conforms


def test_a_result_that_underflows_keeps_its_sign():
    inputs, case = {"input": torch.tensor([[-1e-30, 1e-30, 1.0, 1.0]]), "weight": torch.full((4,), 1e-30)}, contract("rmsnorm")
    outputs = evaluate("rmsnorm", inputs, case)
    assert judge("rmsnorm", inputs, outputs, case).conforms
    assert not judge("rmsnorm", inputs, {"output": outputs["output"].abs()}, case).conforms


def test_a_silu_of_zero_is_attainable_only_where_a_form_in_use_gives_it():
    """At -18.8 and below, where 1 + tanh is 0; not at -15."""
    case = contract("silu_and_mul")
    inputs = {"input": torch.tensor([[-15.0, -19.0, 1.0, 1.0]])}
    right = evaluate("silu_and_mul", inputs, case)["output"]
    assert judge("silu_and_mul", inputs, {"output": right * torch.tensor([[1.0, 0.0]])}, case).conforms
    assert not judge("silu_and_mul", inputs, {"output": right * torch.tensor([[1.0, 0.5]])}, case).conforms
    assert not judge("silu_and_mul", inputs, {"output": right * torch.tensor([[0.0, 1.0]])}, case).conforms


def test_an_activation_that_cancels_conforms_and_is_counted():
    inputs, case = {"input": torch.linspace(-5, 3, 2000).repeat(1, 2)}, contract("gelu_and_mul")
    assert judge("gelu_and_mul", inputs, evaluate("gelu_and_mul", inputs, case), case).statistics["cancelling"] == 0
    verdict = judge("gelu_and_mul", inputs, torchs("gelu_and_mul", inputs, case), case)
    assert verdict.conforms
    assert verdict.statistics["cancelling"] > 100


def test_a_tanh_good_to_eleven_bits_does_not_conform():
    """tanh.approx.f32 is off by up to 2^-11: more than rounding to fp16 or bf16 hides."""
    inputs, case = inputs_of("silu_and_mul", 8, 512, BF16), contract("silu_and_mul")
    gate, up = inputs["input"].float().chunk(2, -1)
    coarse = torch.tanh(0.5 * gate) * (1 + 2.0**-11 * torch.sin(1e4 * gate))
    assert not judge("silu_and_mul", inputs, {"output": (0.5 * gate * (1 + coarse) * up).to(BF16)}, case).conforms


def test_nothing_compared_is_no_conformity():
    inputs = {"input": torch.empty(0, 8), "weight": torch.ones(8)}
    verdict = judge("rmsnorm", inputs, {"output": torch.empty(0, 8)}, contract("rmsnorm"))
    assert not verdict.conforms
    assert "nothing was compared" in verdict.reasons[0]


def test_an_output_of_another_shape_or_dtype_is_a_reason():
    inputs, case = inputs_of("rmsnorm", 2, 8, BF16), contract("rmsnorm")
    output = evaluate("rmsnorm", inputs, case)["output"]
    assert not judge("rmsnorm", inputs, {"output": output.float()}, case).conforms
    assert not judge("rmsnorm", inputs, {"output": output[:1]}, case).conforms


def test_a_bias_rounded_to_the_weights_dtype_is_another_contract():
    inputs = inputs_of("gemma_rmsnorm", 8, 512, BF16)
    fp32, stored = (Contract("W0", weight_bias=1.0, bias_in_fp32=in_fp32) for in_fp32 in (True, False))
    outputs = evaluate("gemma_rmsnorm", inputs, stored)
    assert judge("gemma_rmsnorm", inputs, outputs, stored).conforms
    assert not judge("gemma_rmsnorm", inputs, outputs, fp32).conforms


def test_a_subnormal_product_is_rounded_by_fp32_before_it_is_by_storage():
    """1.4999976 steps of bf16 become 1.5 in fp32, whose own steps are no finer there, and then 2."""
    generator = torch.Generator().manual_seed(10)  # with a product that near to a tie
    rows = {name: torch.randn(64, 333, generator=generator).mul(0.02).bfloat16() for name in ("input", "residual")}
    steps = torch.randint(4, 41, (333,), generator=generator, dtype=torch.float64)
    inputs = {**rows, "weight": (steps * 2.0**-133).bfloat16()}
    meant = contract("fused_add_rmsnorm", "R0W0", eps=1e-3)
    verdict = judge("fused_add_rmsnorm", inputs, evaluate("fused_add_rmsnorm", inputs, meant), meant)
    assert verdict.reasons == ()

"""Every contract is named, and what follows none is not."""

from types import SimpleNamespace

import pytest
import torch

from difftest.identify import probes
from difftest.identify.hypotheses import EPS_CANDIDATES
from difftest.identify.infer import MARGIN, identify
from difftest.identify.report import document, last_line
from difftest.identify.tally import shown
from difftest.providers.resolve import resolve
from reference.arithmetic import evaluate
from reference.contracts import contract, corners
from reference.operators import OPERATORS
from reference.providers import names

from .conftest import DTYPES

HALVES = ("bf16", "fp16")
BF16_FIRST = ("bf16", pytest.param("fp16", marks=pytest.mark.slow))
WIDTHS = (3, 111, 4096)
ALL = [(op, c.code) for op in OPERATORS for c in corners(op)]


def is_named(found, op, wanted):
    """Whether the contract was named in full, with nothing to remark."""
    assert found.found is not None, found.why
    assert (found.found.code, found.found.weight_bias, found.found.bias_in_fp32) == (wanted, OPERATORS[op].weight_bias, True)
    assert not found.approximate
    assert not found.remarks
    if OPERATORS[op].vectors:
        assert (found.found.eps, found.listens) == (1e-6, True)


# A kernel takes the CPU emulator seconds to compile for each width, dtype and contract: a few here, all of them below.
@pytest.mark.parametrize(
    ("op", "code", "dtype", "width"),
    [
        pytest.param("fused_add_rmsnorm", "R1W0", "bf16", 4096, marks=pytest.mark.slow),
        pytest.param("gemma_rmsnorm", "W1", "fp16", 111, marks=pytest.mark.slow),
        ("silu_and_mul", "S1", "bf16", 3),
        pytest.param("gelu_tanh_and_mul", "S0", "fp16", 4096, marks=pytest.mark.slow),
    ],
)
def test_our_kernels_are_named(op, code, dtype, width):
    function = resolve("numba").function(op, contract(op, code))
    is_named(identify(OPERATORS[op], function, DTYPES[dtype], [width], seed=len(op)), op, code)


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["numba", "torch"])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_contract_is_named_from_each_of_five_seeds_at_each_width(provider, dtype, width):
    for op, code in ALL:
        function = resolve(provider).function(op, contract(op, code))
        for seed in range(5):
            is_named(identify(OPERATORS[op], function, DTYPES[dtype], [width], seed=seed), op, code)


@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize(
    ("file", "function", "line"),
    [
        ("norms", "fused_add_rmsnorm_r0w0", "contract: R0W0 (eps 1e-06 as passed; weight bias 0)"),
        ("norms", "fused_add_rmsnorm_r1w0", "contract: R1W0 (eps 1e-06 as passed; weight bias 0)"),
        ("norms", "fused_add_rmsnorm_r0w1", "contract: R0W1 (eps 1e-06 as passed; weight bias 0)"),
        ("norms", "fused_add_rmsnorm_r1w1", "contract: R1W1 (eps 1e-06 as passed; weight bias 0)"),
        pytest.param("norms", "rmsnorm_w0", "contract: W0 (eps 1e-06 as passed; weight bias 0)", marks=pytest.mark.slow),
        ("norms", "rmsnorm_w1", "contract: W1 (eps 1e-06 as passed; weight bias 0)"),
        pytest.param("norms", "rmsnorm_of_torch", "contract: W0 (eps 1e-06 as passed; weight bias 0)", marks=pytest.mark.slow),
        ("norms", "gemma_rmsnorm_w0", "contract: W0 (eps 1e-06 as passed; weight bias 1 in fp32)"),
        ("norms", "gemma_rmsnorm_bias_in_the_dtype", "contract: W0 (eps 1e-06 as passed; weight bias 1 in {dtype})"),
        pytest.param(
            "norms", "gemma_rmsnorm_without_the_bias", "contract: W0 (eps 1e-06 as passed; weight bias 0)", marks=pytest.mark.slow
        ),
        pytest.param(
            "norms",
            "gemma_fused_add_rmsnorm_r1w1",
            "contract: R1W1 (eps 1e-06 as passed; weight bias 1 in fp32)",
            marks=pytest.mark.slow,
        ),
        ("norms", "rmsnorm_one_e_minus_5", "contract: W0 (eps 1e-05, not the 1e-06 passed; weight bias 0)"),
        pytest.param(
            "norms", "rmsnorm_one_e_minus_6", "contract: W0 (eps 1e-06 whatever is passed; weight bias 0)", marks=pytest.mark.slow
        ),
        ("norms", "rmsnorm_without_eps", "contract: W0 (eps 0, not the 1e-06 passed; weight bias 0)"),
        ("norms", "rmsnorm_eps_of_the_dtype", "contract: W0 (eps {eps:g}, not the 1e-06 passed; weight bias 0)"),
        ("norms", "rmsnorm_eps_of_its_own", "contract: W0 (eps 0.000325, not the 1e-06 passed; weight bias 0)"),
        pytest.param("gated", "silu_and_mul_s0", "contract: S0 (silu in fp32)", marks=pytest.mark.slow),
        ("gated", "silu_and_mul_s1", "contract: S1 (silu in fp32)"),
        ("gated", "gelu_and_mul_s0", "contract: S0 (gelu in fp32)"),
        pytest.param("gated", "gelu_and_mul_s1", "contract: S1 (gelu in fp32)", marks=pytest.mark.slow),
        pytest.param("gated", "gelu_tanh_and_mul_s0", "contract: S0 (gelu_tanh in fp32)", marks=pytest.mark.slow),
        ("gated", "gelu_tanh_and_mul_s1", "contract: S1 (gelu_tanh in fp32)"),
        pytest.param(
            "gated", "swigluoai_and_mul_s0", "contract: S0 (alpha 1.702 as passed; limit 7 as passed)", marks=pytest.mark.slow
        ),
        ("gated", "swigluoai_and_mul_s2", "contract: S2 (alpha 1.702 as passed; limit 7 as passed)"),
        ("gated", "swigluoai_and_mul_alpha_fixed", "contract: S0 (alpha 1.702 whatever is passed; limit 7 as passed)"),
        ("gated", "swigluoai_and_mul_limit_fixed", "contract: S0 (alpha 1.702 as passed; limit 7 whatever is passed)"),
        ("gated", "swigluoai_and_mul_refuses_other_limits", "contract: S0 (alpha 1.702 as passed; limit 7, no other is taken)"),
    ],
)
def test_plain_functions_are_named_with_their_eps_and_bias(candidate, dtype, file, function, line):
    op, call = candidate(file, function)
    storage = DTYPES[dtype]
    found = identify(op, call, storage, WIDTHS, seed=3)
    assert last_line(found) == line.format(dtype=dtype, eps=torch.finfo(storage).eps)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("gelu_tanh_and_mul_hardware_s0", "S0"),
        ("gelu_tanh_and_mul_hardware_s1", "S1"),
        ("silu_and_mul_by_hardware_tanh", "S0"),
    ],
)
def test_a_hardware_tanh_does_not_hide_the_contract(candidate, dtype, function, code):
    op, call = candidate("gated", function)
    found = identify(op, call, DTYPES[dtype], [111], seed=1)
    assert found.found.code == code
    assert found.approximate > 100
    assert "only a hardware tanh explains" in last_line(found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", ["gelu_tanh_and_mul_cut_constant", "gelu_tanh_and_mul_wrong_constant"])
def test_another_constant_is_no_hardware_tanh(candidate, dtype, function):
    """0.0447 or 0.045 for 0.044715: far smaller errors than tanh.approx has."""
    found = identify(*candidate("gated", function), DTYPES[dtype], [111])
    assert found.found is None
    assert "no hardware tanh" in found.remarks[0]


@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("wrong_norms", "rmsnorm_rounds_rstd"),
        ("wrong_norms", "rmsnorm_divides_by_one_more"),
        ("wrong_norms", "rmsnorm_drops_one_element"),
        ("wrong_norms", "rmsnorm_eps_outside_the_root"),
        ("wrong_norms", "rmsnorm_scales_the_weight_first"),
        ("wrong_norms", "rmsnorm_nan"),
        ("wrong_norms", "fused_add_rmsnorm_keeps_the_old_residual"),
        ("gated", "gelu_tanh_and_mul_is_erf"),
        ("gated", "gelu_and_mul_is_tanh"),
        ("gated", "silu_and_mul_swapped"),
        ("gated", "silu_and_mul_rounds_the_sigmoid"),
    ],
)
def test_what_follows_no_contract_is_none(candidate, dtype, width, file, function):
    op, call = candidate(file, function)
    found = identify(op, call, DTYPES[dtype], [width])
    assert found.found is None
    assert last_line(found).startswith("contract: none (")
    assert found.first is not None
    assert found.nearest is not None


def test_none_comes_with_the_first_contradiction_as_bits_and_what_the_nearest_allows(candidate):
    op, call = candidate("wrong_norms", "rmsnorm_rounds_rstd")
    found = identify(op, call, torch.bfloat16, [3])
    first = found.first
    assert (first.output, first.width, found.nearest.contract.code) == ("output", 3, "W0")
    assert "(0x" in first.found
    assert "(0x" in first.allowed
    output = call(**probes.telling(op, torch.bfloat16, 3, 0), eps=1e-6)
    right = evaluate(op, probes.telling(op, torch.bfloat16, 3, 0), contract(op))["output"]
    assert first.found == shown(output[first.index])
    assert first.allowed == shown(right[first.index]) != first.found
    assert torch.equal(output.flatten()[: 3 * first.index[0]], right.flatten()[: 3 * first.index[0]])
    assert found.codes[0].contradicting > MARGIN
    assert f"output[{first.index[0]}, {first.index[1]}] at width 3 is" in last_line(found)


def test_a_wrong_residual_is_the_first_contradiction(candidate):
    found = identify(*candidate("wrong_norms", "fused_add_rmsnorm_keeps_the_old_residual"), torch.bfloat16, [3])
    assert found.first.output == "residual"


@pytest.mark.parametrize("dtype", BF16_FIRST)
@pytest.mark.parametrize("function", ["limit_ignored", "limit_off", "gate_clamped_below", "up_not_clamped_below", "nan_lost"])
def test_what_clamps_elsewhere_or_loses_nan_is_none_at_width_3_already(candidate, dtype, function):
    found = identify(*candidate("gated", f"swigluoai_and_mul_{function}"), DTYPES[dtype], [3])
    assert last_line(found).startswith("contract: none (")
    assert found.first is not None


def test_a_lost_nan_is_the_first_contradiction(candidate):
    found = identify(*candidate("gated", "swigluoai_and_mul_nan_lost"), torch.bfloat16, [3])
    assert last_line(found).endswith("allowed: NaN)")


def test_what_raises_for_another_limit_is_none_and_says_for_which(candidate):
    found = identify(*candidate("gated", "swigluoai_and_mul_one_limit_only"), torch.bfloat16, [3])
    assert (found.found, found.why) == (None, "with limit 2.00854, at width 3 it raised ValueError: limit must be 7")


def test_a_value_that_is_refused_leaves_no_width_out(candidate):
    found = identify(*candidate("gated", "swigluoai_and_mul_refuses_other_limits"), torch.bfloat16, [3])
    assert (found.refused, document(found)["parameters"]["limit"]) == ({}, {"value": 7.0, "as_passed": None})


def test_another_function_is_named_where_there_is_one(candidate):
    found = identify(*candidate("gated", "gelu_tanh_and_mul_is_erf"), torch.bfloat16, [111])
    assert found.remarks == ["it computes gelu_and_mul under S0"]


def test_a_contract_that_changes_with_the_width_is_none_and_says_so(candidate):
    found = identify(*candidate("wrong_norms", "fused_add_rmsnorm_by_width"), torch.bfloat16, WIDTHS)
    assert found.why == "width 3 follows R0W0; width 111 follows R0W0; width 4096 follows R1W0"
    assert found.found is None


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("rmsnorm_raises", "at width 3 it raised ValueError: width must be a multiple of 8"),
        ("rmsnorm_comes_back_wider", "at width 3: output has dtype torch.float32, not torch.bfloat16"),
        ("rmsnorm_counts", "at width 3: returned int, not a tensor"),
        ("fused_add_rmsnorm_rebinds", "at width 3: input was rebound to other memory; fused_add_rmsnorm works in place"),
    ],
)
def test_what_raises_or_returns_something_else_is_none(candidate, function, why):
    found = identify(*candidate("wrong_norms", function), torch.bfloat16, [3])
    assert (found.found, found.why) == (None, why)


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "rmsnorm", "silu_and_mul"])
def test_fp32_says_that_the_corners_coincide(op):
    for code in OPERATORS[op].codes:
        found = identify(OPERATORS[op], resolve("torch").function(op, contract(op, code)), torch.float32, [3, 111])
        assert len(found.codes) == 1
        assert last_line(found).startswith(f"contract: {OPERATORS[op].codes[0]} (fp32: {', '.join(OPERATORS[op].codes)} coincide")


def test_rows_of_one_element_leave_the_norms_undecided():
    found = identify(OPERATORS["rmsnorm"], resolve("torch").function("rmsnorm"), torch.bfloat16, [1])
    assert found.undecided
    assert last_line(found) == "contract: undecided (widths 1 can't tell W0 from W1)"


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("op", OPERATORS)
def test_over_a_thousand_elements_contradict_each_wrong_corner_at_width_3(op, dtype):
    function = resolve("torch").function(op)
    found = identify(OPERATORS[op], function, DTYPES[dtype], [3], seed=2)
    assert [each.against for each in found.codes if each.fits] == [0]
    assert all(each.against > 1000 for each in found.codes if not each.fits), document(found)["codes"]


@pytest.mark.parametrize("width", [1, 2, 3, 111])
def test_no_eps_that_is_tried_moves_the_rows_that_tell_the_corners_apart(width):
    rows = probes.telling(OPERATORS["fused_add_rmsnorm"], torch.float16, width, 0)
    mean_square = (rows["input"].double() + rows["residual"].double()).square().mean(-1)
    assert max(EPS_CANDIDATES) / mean_square.min() / 2 < 2**-25


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("limit", [2.0, 7.0])
def test_a_hundred_probed_gates_and_ups_lie_close_to_each_side_of_the_limit_and_beyond_it(dtype, limit):
    op = OPERATORS["swigluoai_and_mul"]
    values = op.split(probes.switching(op, DTYPES[dtype], 3, 0, contract(op, limit=limit)))
    for each in values.values():
        magnitude = each.float().abs()
        for low, high in ((15 / 16, 1.0), (1.0, 17 / 16), (2.0, 4.0)):
            found = (magnitude > low * limit) & (magnitude < high * limit)
            assert min((found & (each > 0)).sum(), (found & (each < 0)).sum()) > 100
        assert each.isnan().any()
        assert each.isinf().any()


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("provider", ["torch", *[pytest.param(name, marks=pytest.mark.slow) for name in ("torch-rmsnorm", "hf")]])
def test_a_provider_follows_the_contract_it_claims_on_the_cpu(provider, op):
    check_claim(provider, op, "cpu", [3, 111])


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATORS)
def test_torch_compile_follows_the_contract_it_claims_on_the_cpu(op):
    check_claim("torch-compile", op, "cpu", [111])


@pytest.mark.gpu
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("provider", names())
def test_a_provider_follows_the_contract_it_claims_on_the_gpu(provider, op, width):
    for seed in range(5):
        check_claim(provider, op, "cuda", [width], seed)


@pytest.mark.gpu
@pytest.mark.parametrize(("op", "code"), ALL)
def test_our_kernels_are_named_under_every_contract_on_the_gpu(op, code):
    function = resolve("numba").function(op, contract(op, code))
    for dtype in HALVES:
        for seed in range(5):
            for width in WIDTHS:
                is_named(identify(OPERATORS[op], function, DTYPES[dtype], [width], "cuda", seed), op, code)


def check_claim(provider, op, device, widths, seed=1):
    """The contract named is the one claimed, in both dtypes; skipped, with the reason, where it can't be asked."""
    asked = resolve(provider)
    for dtype in HALVES:
        refused = {w: asked.check(SimpleNamespace(op=op, dtype=dtype, width=w, device=device)) for w in widths}
        taken = [width for width in widths if not refused[width]]
        if not taken:
            pytest.skip(refused[widths[0]])
        found = identify(OPERATORS[op], asked.function(op), DTYPES[dtype], taken, device, seed=seed)
        if not found.widths and not found.why.startswith("at width"):
            pytest.skip(str(found.refused))
        claimed = asked.claims(op)
        assert found.found is not None, last_line(found)
        assert (found.found.code, found.found.weight_bias) == (claimed.code, claimed.weight_bias), last_line(found)
        assert found.found.bias_in_fp32 == claimed.bias_in_fp32
        assert not found.eps_ignored

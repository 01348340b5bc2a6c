"""`assert_conforms`: silent where a callable follows its contract, else a report that says all there is to know."""

import json
import subprocess
import sys

import pytest
import torch

import difftest
from difftest import assert_conforms
from difftest.errors import UsageError
from difftest.providers.resolve import resolve
from reference.contracts import contract

SMALL = {"dtypes": "bf16", "widths": [3, 64], "regimes": "normal", "strength": 0}


def rmsnorm(input, weight, eps):
    x = input.float()
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()).to(input.dtype)


def half_as_large_again(input, weight, eps):
    return rmsnorm(input, weight, eps) * 1.5


def test_importing_the_package_imports_no_library():
    code = "import sys, difftest; difftest.__all__; print({'torch', 'numpy', 'rich', 'click', 'pytest'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "set()\n", ran.stderr
    with pytest.raises(AttributeError, match="nothing_there"):
        _ = difftest.nothing_there


@pytest.mark.parametrize("op", ["fused_add_rmsnorm", "silu_and_mul"])
def test_what_follows_its_contract_passes(op, tmp_path):
    assert assert_conforms(resolve("torch").function(op, contract(op)), op, failures=tmp_path, **SMALL) is None
    assert list(tmp_path.iterdir()) == []


def test_the_operator_is_what_the_name_says_and_the_contract_is_the_one_asked_for(tmp_path):
    assert_conforms(rmsnorm, failures=tmp_path, **SMALL)
    with pytest.raises(AssertionError, match="does not conform"):
        assert_conforms(rmsnorm, contract="W1", failures=tmp_path, **SMALL)


def test_a_failure_shows_reasons_histogram_and_the_shrunk_case_with_the_command_that_replays_it(tmp_path):
    with pytest.raises(AssertionError) as failure:
        assert_conforms(half_as_large_again, "rmsnorm", failures=tmp_path, **SMALL)
    text = str(failure.value)
    assert text.splitlines()[0].endswith("half_as_large_again does not conform: 3 of 3 comparisons differ")
    assert "rstd is off" in text
    assert "below" in text
    assert "above" in text
    assert "Shrunk: rmsnorm bf16 1x1" in text
    assert "weight: 4000 (2)" in text  # 1, which is simpler, would let a kernel pass that returns its input
    (saved,) = tmp_path.glob("*-shrunk.json")
    assert f"numba-kernels replay {saved}" in text
    again = subprocess.run(
        [sys.executable, "-m", "difftest.cli", "replay", str(saved), "--failures", str(tmp_path / "again")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert again.returncode == 1, again.stderr
    assert "rstd is off" in again.stdout


def test_a_function_that_no_command_finds_is_called_again_with_the_saved_case(tmp_path):
    def local(input, weight, eps):
        return rmsnorm(input, weight, eps) * 1.5

    with pytest.raises(AssertionError) as failure:
        assert_conforms(local, "rmsnorm", failures=tmp_path, **SMALL)
    (saved,) = tmp_path.glob("*-shrunk.json")
    assert f"case='{saved}'" in str(failure.value)
    for case in (saved, json.loads(saved.read_text())):
        with pytest.raises(AssertionError, match="does not conform: 1 of 1"):
            assert_conforms(local, case=case, failures=tmp_path)
        assert_conforms(rmsnorm, case=case, failures=tmp_path)


def test_what_failed_before_runs_first(tmp_path):
    with pytest.raises(AssertionError):
        assert_conforms(half_as_large_again, "rmsnorm", failures=tmp_path, **SMALL)
    seen = []

    def half_as_large_again_no_more(input, weight, eps):
        seen.append(tuple(input.shape))
        return rmsnorm(input, weight, eps)

    renamed = half_as_large_again_no_more
    for path in tmp_path.glob("*.json"):  # the candidate's name is part of what says whose case it is
        path.write_text(json.dumps(json.loads(path.read_text()) | {"candidate": renamed.__qualname__}))
    assert_conforms(renamed, "rmsnorm", failures=tmp_path, **SMALL)
    assert seen[0] == (1, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"regimes": "zeros", "widths": 1, "dtypes": "bf16", "rows": 1, "strength": 0}, "nothing was shown, which is no pass"),
        ({"rows": "0", **SMALL}, "nothing was shown, which is no pass"),
    ],
)
def test_nothing_compared_is_no_pass(tmp_path, words, said):
    with pytest.raises(AssertionError, match=said):
        assert_conforms(rmsnorm, failures=tmp_path, **words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"op": "rmsnrm"}, "did you mean rmsnorm"),
        ({"op": "rmsnorm", "dtypes": ["fp8"]}, "fp16, bf16, fp32"),
        ({"op": "rmsnorm", "widths": [0]}, "from 1 up"),
        ({"op": "rmsnorm", "contract": "S1"}, "W0, W1"),
        ({}, "name the operator"),
        ({"case": {"op": "rmsnorm"}}, "case: not a case record"),
    ],
)
def test_an_argument_that_makes_no_sense_is_no_failure_of_the_function(words, said):
    with pytest.raises(ValueError, match=said):
        assert_conforms(lambda input, weight, eps: input, **words)


def test_time_that_is_left_is_searched(tmp_path):
    def wrong_at_one_width(input, weight, eps):
        return rmsnorm(input, weight, eps) * (1.5 if input.shape[-1] == 29 else 1)

    assert_conforms(wrong_at_one_width, "rmsnorm", failures=tmp_path, **SMALL)
    with pytest.raises(AssertionError, match="Shrunk: rmsnorm bf16 1x29"):
        assert_conforms(wrong_at_one_width, "rmsnorm", failures=tmp_path, time_budget=30, **SMALL)


@pytest.mark.parametrize(
    ("argument", "allowed"),
    [
        ({"device": None}, "device: None is not allowed; allowed: text"),
        ({"contract": 5}, "contract: 5 is not allowed; allowed: text"),
        ({"seed": "1"}, "seed: '1' is not allowed; allowed: a whole number"),
        ({"eps": "small"}, "eps: 'small' is not allowed; allowed: a number"),
        ({"widths": 1.5}, "widths: 1.5 is not allowed; allowed: text or a list"),
        ({"failures": 5}, "failures: 5 is not allowed; allowed: a path"),
    ],
)
def test_an_argument_of_another_kind_is_named_with_what_is_allowed(argument, allowed):
    with pytest.raises(UsageError, match=allowed):
        assert_conforms(rmsnorm, **argument)


def test_what_is_no_function_is_named():
    with pytest.raises(UsageError, match="function: 5 is not allowed; allowed: a function or text"):
        assert_conforms(5, "rmsnorm")

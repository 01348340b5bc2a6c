"""The search: a fault of one width and one binade is found, shrunk, saved, and written as a test that stands on its own."""

import json
import math
import random
import runpy
import time
from itertools import islice

import pytest
import torch

from difftest.cases import Case, binades
from difftest.cases.request import Request
from difftest.providers.file import FileCandidate
from difftest.providers.resolve import resolve
from difftest.search import emit, sweep
from difftest.search.combine import Combinations
from difftest.search.example import Example
from difftest.search.run import Finding, search
from reference.contracts import contract

KERNEL = """
import torch


def rmsnorm(input, weight, eps):
    x = input.float()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()
    if {fault}:
        y = y * 1.5
    return y.to(input.dtype)
"""
FAULT = "x.shape[-1] == {width} and bool(((x.abs() >= 2.0**{k}) & (x.abs() < 2.0 ** ({k} + 1))).any())"


def request(op, dtype, widest, **more):
    return Request({op: contract(op)}, [dtype], [3], widest=widest, **more)


def planted(op, width, exponent):
    """The operator, wrong at one width where some element of the first tensor lies in one binade."""
    plain = resolve("torch").function(op, contract(op))
    share = 2 if op.endswith("_and_mul") else 1

    def function(x, *others):
        size = x.float().abs()
        bad = x.shape[-1] == share * width and bool(((size >= 2.0**exponent) & (size < 2.0 ** (exponent + 1))).any())
        found = plain(x, *others)
        if bad:
            (x if found is None else found).mul_(1.5)
        return found

    return FileCandidate(op, function)


def test_a_sweep_has_every_width_once_in_an_order_of_its_own():
    def first(most, **more):
        return list(islice(sweep.sweep(request("rmsnorm", "bf16", 50, **more), "rmsnorm", "bf16"), most))

    cases = first(50)
    widths = [case.width for case in cases]
    assert sorted(widths) == list(range(1, 51))
    assert widths != sorted(widths)
    assert all(case.rows == binades.rows_for(case.operator, case.format, case.width) for case in cases)
    assert first(50) == cases
    assert max(case.rows for case in first(50, rows=[5])) == 5
    later = first(100)[50:]
    assert sorted(case.width for case in later) == list(range(1, 51))
    assert {case.seed for case in later}.isdisjoint(case.seed for case in cases)


@pytest.mark.parametrize(
    ("op", "dtype", "width", "exponent"),
    [("rmsnorm", "bf16", 37, -100), ("fused_add_rmsnorm", "fp16", 60, 15), ("silu_and_mul", "fp32", 1, -3)],
)
def test_a_fault_of_one_width_and_binade_is_found_and_shrunk(op, dtype, width, exponent):
    found = search(planted(op, width, exponent), [], request(op, dtype, 60), time.monotonic() + 120)
    (finding,) = found.findings
    assert finding.whole
    assert finding.case.width == width
    assert finding.case.rows <= 2
    assert finding.reasons
    assert finding.case.given.to_json()["values"]


@pytest.mark.slow
def test_a_right_candidate_is_searched_to_the_end_of_the_time():
    found = search(resolve("torch"), [], request("rmsnorm", "bf16", 40), time.monotonic() + 8.5)
    (group,) = found.groups
    assert group.finding is None
    assert group.swept > 40
    assert group.combined


def test_combinations_are_of_the_request_and_differ_and_are_the_same_again():
    wanted = request("silu_and_mul", "fp16", 100, seed=5)

    def eighty():
        seen = []
        drawn = Combinations(wanted, "silu_and_mul", "fp16")
        assert drawn.run(lambda case: seen.append(case) or len(seen) == 80, time.monotonic() + 60) == 80
        return seen

    seen = eighty()
    assert {(case.op, case.dtype) for case in seen} == {("silu_and_mul", "fp16")}
    assert max(case.width for case in seen) <= 100
    for values in ({c.regime for c in seen}, {c.rows for c in seen}, {len(c.lead) for c in seen}, {c.out for c in seen}):
        assert len(values) > 1
    assert eighty() == seen


@pytest.mark.parametrize("how", ["raise ValueError('no')", "os._exit(3)"])
def test_what_ends_a_turn_of_several_calls_is_found_at_its_own_width(difftest, tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    kernel = tmp_path / "kernel.py"
    right = KERNEL.format(fault="False")
    kernel.write_text("import os\n" + right.replace("    x = ", f"    if input.shape[-1] == 37: {how}\n    x = ", 1))
    small = ("--dtypes", "bf16", "--widths", "3,40", "--regimes", "binades", "--cases", "0", "--strength", "0")
    ran = difftest("--candidate", f"{kernel}:rmsnorm", *small, "--time-budget", "60")
    (group,) = ran.json["search"]["groups"]
    assert group["finding"]["case"]["width"] == 37


def test_what_is_known_to_fail_is_shrunk_and_its_group_not_searched():
    known = Case("rmsnorm", "bf16", (4,), 37, "normal", 1, contract("rmsnorm"))
    candidate = FileCandidate("rmsnorm", lambda x, weight, eps: torch.zeros_like(x))
    found = search(candidate, [known], request("rmsnorm", "bf16", 60), time.monotonic() + 60)
    (group,) = found.groups
    assert (group.swept, group.combined) == (0, 0)
    assert (group.finding.found, group.finding.case.rows, group.finding.case.width) == (known, 1, 1)


def test_the_command_line_finds_shrinks_saves_and_writes_a_test_that_stands_on_its_own(difftest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kernel, emitted = tmp_path / "kernel.py", tmp_path / "test_emitted.py"
    kernel.write_text(KERNEL.format(fault=FAULT.format(width=29, k=9)))
    small = ("--dtypes", "bf16", "--widths", "3,40", "--regimes", "normal,binades", "--cases", "0", "--strength", "0")
    words = ("--candidate", f"{kernel}:rmsnorm", *small)
    assert difftest(*words).status == 0

    ran = difftest(*words, "--time-budget", "60", "--emit-pytest", emitted)
    assert ran.status == 1
    assert "Shrunk: rmsnorm bf16 1x29" in ran.out
    assert "4400 (512)" in ran.out
    (group,) = ran.json["search"]["groups"]
    assert group["finding"]["case"]["lead"] == [1]
    (saved,) = (tmp_path / "failures").glob("*-shrunk.json")
    assert json.loads(saved.read_text())["given"] == group["finding"]["case"]["given"]

    imports = [line for line in emitted.read_text().splitlines() if line.startswith(("import ", "from "))]
    assert imports == ["from difftest import assert_conforms"]
    test = next(value for name, value in runpy.run_path(str(emitted)).items() if name.startswith("test_"))
    with pytest.raises(AssertionError, match="Shrunk: rmsnorm bf16 1x29"):
        test()

    first = difftest(*words)  # the corpus: the saved case runs first, without a search
    assert first.status == 1
    assert first.json["cases"][0]["origin"] == "saved"
    assert first.json["cases"][0]["verdict"] == "differs"

    kernel.write_text(KERNEL.format(fault="False"))
    test()
    mended = difftest(*words)
    assert mended.status == 0
    assert mended.json["cases"][0]["verdict"] == "conforms"


def test_no_failure_is_no_test(difftest, tmp_path):
    emitted = tmp_path / "test_emitted.py"
    ran = difftest("--ops", "rmsnorm", "--dtypes", "bf16", "--widths", "8", "--candidate", "torch", "--emit-pytest", emitted)
    assert ran.status == 0
    assert "is not written: there is no failure" in ran.out
    assert not emitted.exists()


ONE_BINADE = """
import numpy as np
import torch


def fault(values, width):
    size = np.abs(values)
    return (size >= 2.0**{exponent}) & (size < 2.0 ** ({exponent} + 1)) if width == {width} else np.zeros(values.shape, bool)


def rmsnorm(input, weight, eps):
    x = input.float().numpy()
    rms = np.sqrt(np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32) + np.float32(eps))
    y = x / rms * weight.float().numpy()
    return torch.from_numpy(np.where(fault(x, x.shape[-1]), y * np.float32(1.5), y)).to(input.dtype)


def fused_add_rmsnorm(input, residual, weight, eps):
    x = input.float() + residual.float()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()
    residual.copy_(x)
    input.copy_(torch.where(torch.from_numpy(fault(x.numpy(), x.shape[-1])), y * 1.5, y))


def silu_and_mul(input):
    gate, up = input.float().chunk(2, -1)
    y = torch.nn.functional.silu(gate) * up
    return torch.where(torch.from_numpy(fault(gate.numpy(), gate.shape[-1])), y * 1.5, y).to(input.dtype)
"""


@pytest.mark.parametrize(("device", "asked"), [("cpu", 'case=CASE, device="cpu")'), ("cuda", "case=CASE)")])
def test_what_failed_on_a_cpu_is_tested_there_also_where_there_is_a_gpu(tmp_path, device, asked):
    case = Case("rmsnorm", "bf16", (1,), 3, "normal", 1, contract("rmsnorm"), device=device)
    emit.write(tmp_path / "test_emitted.py", "numba", Finding(case, ("rstd is off",), case, 1, True))
    assert f"    assert_conforms(CANDIDATE, {asked}\n" in (tmp_path / "test_emitted.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "dtype", "width", "exponent"),
    [
        ("rmsnorm", "bf16", 4999, -100),
        ("rmsnorm", "fp32", 4999, -100),
        ("rmsnorm", "fp32", 1371, 62),  # whose square is finite, and a row's of them is not
        ("fused_add_rmsnorm", "bf16", 3083, -133),  # the smallest subnormal, as the sum
        ("fused_add_rmsnorm", "fp16", 2, 15),
        ("silu_and_mul", "bf16", 1, 126),  # where the gate is positive: else the value is 0
        ("silu_and_mul", "fp32", 4242, -70),
    ],
)
def test_elements_of_one_binade_that_are_wrong_at_one_width_are_found_in_a_minute(
    difftest, tmp_path, monkeypatch, op, dtype, width, exponent
):
    """A minute by the clock, the run's own cases included; shrinking has its time beyond it."""
    monkeypatch.chdir(tmp_path)
    kernel, emitted = tmp_path / "kernel.py", tmp_path / "test_emitted.py"
    kernel.write_text(ONE_BINADE.format(width=width, exponent=exponent))
    words = ("--candidate", f"{kernel}:{op}", "--dtypes", dtype, "--widths", "3,5000", "--cases", "0", "--strength", "0")
    ran = difftest(*words, "--time-budget", "60", "--emit-pytest", emitted)
    assert ran.status == 1
    (group,) = ran.json["search"]["groups"]
    found = group["finding"]["case"]
    assert (found["width"], math.prod(found["lead"]) <= 2) == (width, True)
    test = next(value for name, value in runpy.run_path(str(emitted)).items() if name.startswith("test_"))
    with pytest.raises(AssertionError, match=f"Shrunk: {op} {dtype} [12]x{width}"):
        test()
    kernel.write_text(ONE_BINADE.format(width=0, exponent=exponent))
    test()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_a_fault_drawn_from_5000_widths_and_every_binade_is_found_in_a_minute_of_this_process(number):
    draw = random.Random(number)
    op = ("rmsnorm", "fused_add_rmsnorm", "silu_and_mul", "gelu_tanh_and_mul")[number]
    dtype = draw.choice(("fp16", "bf16", "fp32"))
    own = Example.of(Case(op, dtype, (1,), 1, "normal", 0, contract(op))).case.format
    width, exponent = draw.randint(1, 5000), draw.randint(own.smallest_exponent - own.fraction_bits, 15)
    began = time.process_time()
    found = search(planted(op, width, exponent), [], request(op, dtype, 5000), time.monotonic() + 300)
    (finding,) = found.findings
    assert (finding.case.width, finding.case.rows <= 2, finding.whole) == (width, True, True)
    assert time.process_time() - began < 60

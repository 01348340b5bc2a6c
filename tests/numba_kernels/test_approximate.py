"""The GPU's approximate functions on the emulator, against what an H200 gave."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from benchmarks import approx_tables as script
from difftest.report import jsonl
from numba_kernels.backend import approximate
from numba_kernels.emulator import EmulatedKernel, disk_cache

SUMS = Path(__file__).parents[2] / "benchmarks" / "results" / "approximate-sums-h200.jsonl"
ENTRIES = jsonl.read("file", SUMS, script.SCHEMA, "a GPU's sums")["sums"]


def results(function, arguments):
    found = np.zeros(arguments.size, np.uint32)
    EmulatedKernel(script.make_evaluate(function)).launch(1, 32, (arguments, found))
    return found


def test_over_all_arguments_the_gpu_made_no_exception():
    instructions = approximate.measured()["instructions"]
    assert set(instructions) == set(script.INSTRUCTIONS)
    assert all((each["inputs"], each["exceptions"]) == (2**32, 0) for each in instructions.values())


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "rcp" else pytest.mark.slow) for name in script.PERIODS])
def test_the_coefficients_give_every_result_of_the_period(name):
    approximation = {"rsqrt": approximate.RSQRT, "rcp": approximate.RECIPROCAL_FTZ, "ex2": approximate.EXP2_FTZ}[name]
    rule = njit(approximation.make(njit))

    @njit
    def every(arguments):
        found = np.empty(arguments.size, np.uint32)
        for i in range(arguments.size):
            found[i] = rule(np.int64(arguments[i]))
        return found

    digest = hashlib.sha256(every(script.PERIODS[name][1]()).tobytes()).hexdigest()
    assert digest == approximate.measured()["period_sha256"][name]


def test_the_coefficients_follow_from_the_results():
    function, arguments, segments, least = script.PERIODS["ex2"]
    count = (1 << 23) // segments
    first = results(function, arguments()[: 2 * count])
    assert script.inferred(first, 2, least) == approximate.measured()["coefficients"]["ex2"][:2]
    first[count + 5] += 2
    with pytest.raises(ValueError, match=r"segment 1: no coefficients give its results"):
        script.inferred(first, 2, least)


@pytest.mark.parametrize("name", script.INSTRUCTIONS)
def test_special_values_have_the_gpus_results(name):
    special = approximate.measured()["instructions"][name]["special"]
    arguments, wanted = (np.array([int(word, 16) for word in words], np.uint32) for words in (special, special.values()))
    assert results(script.INSTRUCTIONS[name][0], arguments).tolist() == wanted.tolist()


def test_the_results_are_within_the_error_that_ptx_documents():
    x = np.random.default_rng(0).uniform(1.0, 4.0, 4096).astype(np.float32)
    truth = x.astype(np.float64)
    for name, want, most in (
        ("rsqrt.approx.f32", 1 / np.sqrt(truth), 2**-22.9),
        ("rcp.approx.ftz.f32", 1 / truth, 2**-23.0),
        ("ex2.approx.f32", np.exp2(truth), 2**-22.0),
    ):
        found = results(script.INSTRUCTIONS[name][0], x.view(np.uint32)).view(np.float32)
        assert np.abs(found / want - 1).max() <= most, name


def by_name(entries):
    return [pytest.param(e, id=e["function"], marks=[] if e["function"] == "silu bf16" else pytest.mark.slow) for e in entries]


@pytest.mark.parametrize("entry", by_name(ENTRIES))
def test_the_sum_over_16_million_inputs_is_the_gpus(entry):
    """From -0.5 down to -2."""
    assert list(script.differing(entry, [0xBF])) == []


@pytest.mark.slow
@pytest.mark.parametrize("entry", by_name(ENTRIES))
def test_every_eighth_sum_is_the_gpus(entry):
    assert list(script.differing(entry, list(range(0, script.SHARES, 8)))) == []


def test_coefficients_that_are_not_the_measured_ones_are_refused(tmp_path, monkeypatch):
    changed = approximate.measured()
    changed["coefficients"]["rcp"][5][2] += 1
    monkeypatch.setattr(approximate, "FILE", tmp_path / "sm_90.json")
    approximate.FILE.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=r"sm_90.json does not hold the coefficients that were measured"):
        approximate.coefficients("rcp")


def test_kernels_with_approximations_are_kept_on_disk():
    names = {disk_cache.digest(function) for function, _ in script.INSTRUCTIONS.values()}
    assert len(names) == 4

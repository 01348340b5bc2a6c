"""The runner of entries: who is found, by which check, and what an interruption leaves."""

import sys

import pytest

from difftest import cli
from difftest.mutants import run
from difftest.mutants.corpora import CORPORA
from difftest.mutants.run import Asked

SMALL = {**cli.DEFAULTS, "--widths": "3,64", "--dtypes": "bf16", "--cases": 0, "--strength": 1}


def ran(*entries, seeds=(0,), **given):
    return run.run(Asked(entries, seeds, SMALL, **given))


def test_a_wrong_entry_is_found_and_an_honest_one_is_not():
    wrong, right = ran(("field", "one_row_too_large"), ("honest", "rmsnorm_in_plain_torch")).found
    assert wrong.killed
    assert wrong.caught["batch"]  # one row alone
    assert not wrong.seeds_missed
    assert "bf16" in wrong.first
    assert not right.killed
    assert right.seeds_missed == [0]
    assert right.cases > 10


@pytest.mark.skipif(sys.platform != "linux", reason="rows so far apart are given on Linux alone")
@pytest.mark.parametrize("name", ["positions_in_32_bits", "residual_positions_in_32_bits"])
def test_a_position_in_32_bits_is_found_by_rows_far_apart_alone(name):
    (found,) = ran(("field", name)).found
    assert found.killed
    assert "3x64" in found.first
    (found,) = run.run(Asked((("field", name),), (0,), {**SMALL, "--rows": "2"})).found
    assert not found.killed


def test_entries_run_in_worker_processes_too():
    here, there = (ran(("field", "one_row_too_large"), workers=workers).found[0] for workers in (0, 1))
    assert (here.caught, here.cases, here.first) == (there.caught, there.cases, there.first)


def test_a_run_without_time_leaves_its_entries():
    outcome = ran(("field", "one_row_too_large"), time_budget=0.0)
    assert (outcome.found, outcome.left) == ([], 1)


def test_every_entry_of_a_corpus_has_a_name_of_its_own_and_says_what_it_is():
    for corpus in CORPORA.values():
        entries = corpus.entries()
        assert len({entry.name for entry in entries}) == len(entries)
        assert all(entry.what for entry in entries)
        assert corpus.runs_itself or all(entry.what.endswith(".") and entry.ops for entry in entries)

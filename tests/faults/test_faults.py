"""The k-th call of one function fails: the run ends with the right status and one line, keeps what had finished, leaves nothing
half-written, and gives no wrong verdict. A sample; benchmarks/faults.py runs every k."""

import pytest

from .injection import CANDIDATES, CASES, PLACES, ended, fault, run, wrong_with

SAMPLE = {
    "create a file": (1, 2),
    "write": (1,),
    "fsync": (1,),
    "rename": (3,),
    "make a folder": (1,),
    "allocate a buffer": (1, 9),
    "launch": (4,),
    "start a worker": (1,),
    "append to the journal": (3,),
    "share memory": (1,),
    "start a process": (1,),
    "lose the nursery": (1,),
    "hand a call over": (1, 5),
    "ask the nursery": (1,),
}


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The run in which nothing fails, of either candidate."""
    return {name: run(tmp_path_factory.mktemp("usual") / name, name) for name in CANDIDATES}


def test_without_a_fault_the_right_one_conforms_and_the_wrong_one_differs(usual):
    assert {name: found.status for name, found in usual.items()} == {"numba": 0, "right": 0, "wrong": 1}
    for found in usual.values():
        assert len(found.cases) == CASES
        assert found.left == []
        assert found.error == ""


@pytest.mark.parametrize(
    ("place", "number"),
    [pytest.param(place, number, id=f"{place.name}-{number}") for place in PLACES for number in SAMPLE.get(place.name, ())],
)
def test_a_run_in_which_one_call_fails_ends_as_it_must(usual, place, number, tmp_path):
    candidate = place.of[0]
    with fault(place, number, place.errors[0]) as calls:
        found = run(tmp_path / "run", candidate, place.workers)
    assert len(calls) >= number
    assert wrong_with(place, candidate, usual[candidate], found) == []


def test_a_file_that_is_half_written_and_a_verdict_that_changes_are_seen(usual, tmp_path):
    place = PLACES[0]
    run(tmp_path / "run", "wrong")
    (tmp_path / "run" / "run.xml").write_text("<testsuites>")
    found = ended(tmp_path / "run", 0, "")
    found.verdict = "conforms"
    faults = wrong_with(place, "wrong", usual["wrong"], found)
    assert any(fault.startswith("not whole: run.xml") for fault in faults)
    assert "status 0" in faults
    assert "verdict conforms" in faults

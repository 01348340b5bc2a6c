"""A run that is killed goes on from its journal: no case again, and together what one run would have found."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from difftest.cases import Request, generate
from difftest.errors import UsageError
from difftest.run.journal import Journal, from_plain, to_plain
from difftest.run.lines import FOLDER
from difftest.run.session import Result, Session, run
from reference.contracts import contract

CASES = list(generate(Request({"rmsnorm": contract("rmsnorm")}, ["bf16", "fp32"], [3, 64], rows=[4])))
ABOUT = {"candidate": "a", "against": ["torch"], "batch_invariant": False}
HEAD = json.dumps({"schema": Journal.SCHEMA, **ABOUT}) + "\n"
WORDS = ("--device", "cpu", "--ops", "rmsnorm", "--dtypes", "bf16", "--widths", "3,64", "--cases", "3", "--strength", "1")


@pytest.fixture
def session(broken):
    every = frozenset(range(len(CASES)))
    return Session(CASES, broken("drops_one_element", "rmsnorm"), ["torch", "torch:W1"], again=every, isolated=False)


def test_a_result_is_read_back_as_it_was(session):
    for result in run(session).results:
        plain = json.loads(json.dumps(to_plain(result, leaving_out="case")))
        assert from_plain(Result, {**plain, "case": result.case}) == result


def test_a_run_goes_on_with_what_an_earlier_one_left(session, tmp_path):
    whole, half, rest = (tmp_path / f"{name}.jsonl" for name in ("whole", "half", "rest"))
    expected = run(session, journal=Journal(whole, ABOUT))
    lines = whole.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + len(CASES)
    half.write_bytes(b"".join(lines[:8]) + lines[8][:40])
    seen = []
    journal = Journal(half, ABOUT, resume=True)
    outcome = run(session, seen.append, journal)
    assert seen == CASES
    assert outcome.results == expected.results
    assert half.read_bytes() == whole.read_bytes()
    rest.write_bytes(whole.read_bytes())
    nothing = replace(session, candidate="no such candidate", provider=object(), references=(1, 2))
    assert run(nothing, journal=Journal(rest, ABOUT, resume=True)).results == expected.results


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": "other"}\n', "is no journal"),
        ("[]\n", "line 1 is no line of a journal"),
        (HEAD.replace('"a"', '"b"'), "another run's: candidate was 'b', and is 'a'"),
        (HEAD + "{}\n", "line 2 is no case of a journal"),
        (HEAD + "\xff\n", "line 2 is no line of a journal"),
    ],
)
def test_what_is_no_journal_of_this_run_is_refused_in_a_line(tmp_path, text, said):
    file = tmp_path / "other.jsonl"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="--resume: ") as error:
        Journal(file, ABOUT, resume=True)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_disk_that_is_full_leaves_whole_lines_and_is_said(session, tmp_path, monkeypatch):
    journal = Journal(tmp_path / "full.jsonl", ABOUT)
    write, left = os.write, [3000]

    def little(file, data):
        left[0] -= len(data)
        if left[0] < 0:
            write(file, data[:10])
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", little)
    outcome = run(session, journal=journal)
    assert outcome.not_run == 0
    assert "No space" in str(journal.failure)
    assert all(json.loads(line) for line in journal.path.read_text().splitlines())


def test_an_interrupted_run_leaves_its_journal_and_the_command_that_goes_on(difftest, broken, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--candidate", broken("interrupts", "right_rmsnorm"), "--in-process", "--ops", "rmsnorm", "--widths", 64)
    run = difftest(*words)
    (left,) = (tmp_path / FOLDER).iterdir()
    assert run.status == 130
    assert f"--resume {left.relative_to(tmp_path)}" in run.out
    assert len(left.read_text().splitlines()) == 6
    difftest("--candidate", "torch", *WORDS[2:])
    assert list((tmp_path / FOLDER).iterdir()) == [left]


def test_another_content_of_the_candidates_file_is_another_run(difftest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    text = "from difftest.mutants.plain import rmsnorm\n"
    file.write_text(text)
    words = ("--candidate", f"{file}:rmsnorm", *WORDS[2:])
    assert difftest(*words, "--journal", "kept.jsonl").status == 0
    file.write_text(text + "\n")
    run = difftest(*words, "--resume", "kept.jsonl")
    assert run.status == 2
    assert "another run's: sha256 of" in run.err


def uninterrupted(folder, command):
    """The document of a run that nothing happens to, without times."""
    subprocess.run([*command, "--json", str(folder / "whole.json")], cwd=folder, stdout=subprocess.DEVNULL, check=False)
    return sorted_cases(folder / "whole.json")


def sorted_cases(file):
    return sorted(json.loads(file.read_text())["cases"], key=lambda case: json.dumps(case, sort_keys=True))


def children(pid):
    """The processes that a process started, and theirs."""
    try:
        own = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*own, *(each for child in own for each in children(child))]


def run_under_fire(folder, command, times, victims, mean):
    """Runs the command, goes on with its journal until it ends by itself, and kills a victim, out of those that `victims` gives
    for the run's process, at `times` random moments, `mean` seconds apart. How often it ran, and how often it was shot at."""
    random.seed(times)
    journal, left, runs = folder / "run.jsonl", times, 0
    while True:
        how = "--resume" if runs else "--journal"
        words = [*command, how, str(journal), "--json", str(folder / "run.json")]
        tester = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        runs += 1
        while tester.poll() is None:
            time.sleep(random.expovariate(1 / mean))
            found = victims(tester.pid)
            if left and found and journal.exists():
                with suppress(ProcessLookupError):
                    os.kill(random.choice(found), signal.SIGKILL)
                    left -= 1
        if tester.returncode >= 0:
            assert tester.returncode == 1
            return runs, times - left


def command_of(folder, candidate, *more):
    words = ["--candidate", candidate, "--failures", str(folder / "failures"), *more]
    return [sys.executable, "-m", "difftest.cli", "difftest", *words]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("victims", "times"), [("the tester", 50), ("its processes", 200)])
def test_a_run_that_is_shot_at_finds_what_it_finds_in_peace(broken, tmp_path, monkeypatch, victims, times):
    """`its processes`: the pool's server and workers' nurseries, the candidate's processes, whatever there is at that moment."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    times = int(os.environ.get("SHOTS", times))
    ours = ("--device", "cpu", "--ops", "rmsnorm", "--widths", "3,64", "--cases", "200", "--strength", "1")
    ours += ("--workers", "8")  # many are begun again: that the server is killed while it starts one shows with so many
    command = command_of(tmp_path, broken("drops_one_element", "rmsnorm"), *ours)
    began = time.monotonic()
    expected, shot = uninterrupted(tmp_path, command), 0
    whom, mean = (lambda pid: [pid], (time.monotonic() - began) / 2) if victims == "the tester" else (children, 1.0)
    while shot < times:
        for name in ("run.jsonl", "run.json", "failures"):
            subprocess.run(["rm", "-rf", name], cwd=tmp_path, check=True)
        _, more = run_under_fire(tmp_path, command, times - shot, whom, mean)
        shot += more
        assert sorted_cases(tmp_path / "run.json") == expected
    print(f"{shot} kills of {victims}, {len(expected)} comparisons")


def test_what_was_saved_since_is_not_added_to_a_run_that_goes_on(difftest, broken, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--candidate", broken("drops_one_element", "rmsnorm"), *WORDS[2:])
    first = difftest(*words, "--journal", "kept.jsonl")
    assert list((tmp_path / "failures").iterdir())
    again = difftest(*words, "--resume", "kept.jsonl")
    assert again.json["cases"] == first.json["cases"]
    assert len(difftest(*words).json["cases"]) > len(first.json["cases"])


def test_a_range_whose_length_is_no_number_of_rows_is_refused():
    assert from_plain(range, [2, 5]) == range(2, 5)
    with pytest.raises(ValueError, match="too long a range"):
        from_plain(range, [0, 1 << 70])

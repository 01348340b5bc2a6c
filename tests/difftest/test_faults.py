"""A fault of the tester itself: status 70, one line, a report in a file, and all that was found before it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from difftest import faults
from difftest.run import check as checks

SMALL = ("--ops", "rmsnorm", "--dtypes", "bf16", "--widths", "64", "--cases", "0", "--candidate", "torch")


@pytest.fixture
def faulty(monkeypatch, tmp_path):
    """The judge fails at its `after`-th call, in this folder."""
    monkeypatch.chdir(tmp_path)

    def make(after):
        calls, judge = [], checks.judge

        def failing(*args):
            calls.append(args)
            if len(calls) == after:
                raise ZeroDivisionError("made up")
            return judge(*args)

        monkeypatch.setattr(checks, "judge", failing)

    return make


def test_a_fault_ends_the_run_with_70_and_one_line_and_keeps_what_was_found(difftest, faulty):
    faulty(after=6)
    run = difftest(*SMALL)
    assert run.status == 70
    assert run.json["verdict"] == "no evidence"
    assert len(run.json["cases"]) >= 4
    assert run.json["not_run"] > 0
    assert "conforms" not in run.out.splitlines()[-1]
    [line] = run.err.strip().splitlines()
    found = re.fullmatch(r"error: a fault of the tester itself, ZeroDivisionError: made up; its report is (\S+)", line)
    report = Path(found[1]).read_text()
    assert "ZeroDivisionError: made up" in report
    assert "in failing" in report


def test_a_fault_before_anything_was_found_is_70_too(difftest, faulty):
    faulty(after=1)
    run = difftest(*SMALL)
    assert run.status == 70
    assert len(run.err.strip().splitlines()) == 1


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_an_error_whose_text_fails_and_a_folder_that_takes_no_file_are_told_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr(faults, "FOLDER", tmp_path / "file" / "below")
    (tmp_path / "file").write_text("in the way")
    said = faults.report(Unspeakable())
    assert said.startswith("a fault of the tester itself, Unspeakable: its text raises RuntimeError; its report is ")
    Path(said.rpartition(" ")[2]).unlink()
    monkeypatch.setattr(faults.tempfile, "gettempdir", lambda: str(tmp_path / "file"))
    assert faults.report(ValueError("x")).endswith("its report could not be kept")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_run_ends_as_it_would_where_standard_output_has_few_characters(tmp_path, encoding):
    command = [sys.executable, "cli.py", "difftest", *SMALL, "--json", str(tmp_path / "run.json")]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run.json").read_text())["verdict"] == "conforms"


def test_a_candidates_error_without_words_is_its_own_and_not_the_testers(difftest, tmp_path):
    file = tmp_path / "wordless.py"
    file.write_text(
        "class Wordless(Exception):\n    def __str__(self):\n        raise RuntimeError\n\n\n"
        "def rmsnorm(input, weight, eps):\n    raise Wordless\n"
    )
    run = difftest("--ops", "rmsnorm", "--dtypes", "bf16", "--widths", "64", "--cases", "0", "--candidate", f"{file}:rmsnorm")
    assert run.status == 1
    assert "raised Wordless: its text raises RuntimeError" in run.json["cases"][0]["reasons"][0]


def test_the_end_of_a_file_where_none_belongs_is_a_fault_and_no_interrupt(difftest, monkeypatch, tmp_path):
    monkeypatch.setattr(faults, "FOLDER", tmp_path)
    monkeypatch.setattr(checks, "judge", lambda *given: (_ for _ in ()).throw(EOFError("made up")))
    run = difftest(*SMALL)
    assert run.status == 70
    assert "EOFError" in run.err

"""Result files in two spellings that hold the same document."""

import json

import pytest

from difftest.errors import UsageError
from difftest.matrix import file
from difftest.pages import sources
from difftest.report import jsonl

DOCUMENT = {"schema": "a/1", "date": "today", "points": [{"us": 1.5}, {"us": "µs\n"}], "host": []}


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x"])
def test_what_was_written_is_read_whatever_the_name(tmp_path, name):
    jsonl.write(tmp_path / name, DOCUMENT, ["points", "host"])
    assert jsonl.read("--summary", tmp_path / name, "a/1", "a result") == DOCUMENT


def test_json_lines_have_a_head_and_then_a_line_an_entry(tmp_path):
    jsonl.write(tmp_path / "x.jsonl", DOCUMENT, ["points", "host"])
    head, *lines = map(json.loads, (tmp_path / "x.jsonl").read_text(encoding="utf-8").splitlines())
    assert head == {"schema": "a/1", "date": "today", "parts": ["points", "host"]}
    assert lines == [{"part": "points", "us": 1.5}, {"part": "points", "us": "µs\n"}]


def test_any_other_name_is_one_json_document(tmp_path):
    jsonl.write(tmp_path / "x.json", DOCUMENT, ["points", "host"])
    assert json.loads((tmp_path / "x.json").read_text()) == DOCUMENT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither JSON nor JSON Lines"),
        ("{", "neither JSON nor JSON Lines"),
        ("[]", r"not a result \(a/1\)$"),
        ('{"schema": "a/0"}', r"not a result \(a/1\); it is a/0"),
        ('{"schema": "a/1", "parts": ["points"]}\n{"part": "points"', "line 2 is no entry of 'points'"),
        ('{"schema": "a/1", "parts": ["points"]}\n{"part": "host"}\n', "line 2 is no entry of 'points'"),
        ('{"schema": "a/1", "parts": ["\\u0085points"]}\n{"part": "host"}', r"line 2 is no entry of '\\x85points'"),
        ('{"schema": "a/1", "parts": ["points"]}\n[]\n', "line 2"),
    ],
)
def test_another_file_is_a_line_that_names_its_version(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message) as error:
        jsonl.read("--summary", path, "a/1", "a result")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_a_line(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        jsonl.read("--summary", tmp_path / "none", "a/1", "a result")


def test_a_matrix_is_the_same_in_both_spellings(tmp_path):
    document = file.read("test", sources.MATRIX)
    file.write(tmp_path / "m.json", document)
    file.write(tmp_path / "m.jsonl", document)
    assert json.loads((tmp_path / "m.json").read_text()) == document
    assert file.read("test", tmp_path / "m.json") == file.read("test", tmp_path / "m.jsonl") == document
    group = document["groups"][0]
    assert (tmp_path / "m.jsonl").read_text() == sources.MATRIX.read_text()
    assert len((tmp_path / "m.jsonl").read_text().splitlines()) > len(group["providers"]) + len(group["pairs"])

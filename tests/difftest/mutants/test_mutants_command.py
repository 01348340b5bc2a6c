"""The command `mutants`: its status, what it says of who was found and missed, and the file that it leaves."""

import json

import pytest
from click.testing import CliRunner

from difftest import cli
from difftest.mutants import file, run, tables
from difftest.mutants.checks import CHECKS, UNKNOWN, check_of, checks_of
from difftest.mutants.corpora import CORPORA, Corpus

SMALL = {**cli.DEFAULTS, "--widths": "3,64", "--dtypes": "bf16", "--cases": 0, "--strength": 0}


@pytest.fixture
def mutants(monkeypatch, tmp_path):
    """Runs the command on a few cases, in this process: status, output, document."""
    monkeypatch.setattr(cli, "DEFAULTS", SMALL)
    monkeypatch.chdir(tmp_path)

    def run(*words):
        path = tmp_path / "result.jsonl"
        result = CliRunner().invoke(cli.main, ["mutants", "--workers", "0", "--json", str(path), *map(str, words)])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout + result.stderr, file.read("test", path) if path.exists() else None

    return run


def test_all_found_and_no_honest_one_accused_is_status_0(mutants):
    status, out, document = mutants("--only", "returns_zeros,rmsnorm_in_plain_torch")
    assert status == 0
    assert "1 of 1 wrong kernel found (100.0%); 0 of 1 honest one called wrong" in out
    wrong, right = document["entries"]
    assert (wrong["name"], wrong["killed"], wrong["kind"]) == ("returns_zeros", True, "values")
    assert wrong["calls"] > wrong["cases"] > 0
    assert not tables.accused([right])


def test_one_that_is_missed_is_status_1_and_named_with_its_sentence(mutants):
    status, out, document = mutants("--only", "at_1024_alone", "--seeds", "0,1")
    assert status == 1
    assert "Not found" in out
    assert "At width 1024 the row's last element is left out" in " ".join(out.split())
    assert document["entries"][0]["seeds_missed"] == [0, 1]


def test_one_that_needs_an_option_is_found_with_it_and_says_so(mutants):
    status, out, document = mutants("--only", "above_16384")
    assert status == 0
    assert "--widths 16385" in " ".join(out.split())
    (entry,) = document["entries"]
    assert not entry["caught"]
    assert entry["caught_beyond"]["rstd"]


def test_an_honest_one_that_is_accused_is_status_1(mutants, monkeypatch):
    monkeypatch.setattr("difftest.mutants.command.CORPORA", TURNED)
    monkeypatch.setattr("difftest.mutants.run.CORPORA", TURNED)
    monkeypatch.setattr("difftest.mutants.tables.CORPORA", TURNED)
    status, out, _ = mutants("--corpus", "honest", "--only", "returns_zeros")
    assert status == 1
    assert "called wrong though honest: returns_zeros" in out


TURNED = {"honest": Corpus("honest", "wrong ones in the honest one's place", "difftest.mutants.field", honest=True)}


def test_a_run_that_ends_early_says_how_far_it_came_and_is_no_pass(mutants):
    status, out, document = mutants("--only", "returns_zeros", "--time-budget", 0)
    assert status == 2
    assert "out of time: 0 of 1 kernel done" in out
    assert document["left"] == 1


def without_times(document):
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in document["entries"]]


def test_a_run_that_was_killed_goes_on_from_its_journal(mutants, monkeypatch, tmp_path):
    journal, names = tmp_path / "run.jsonl", ("returns_zeros", "one_row_too_large", "rmsnorm_in_plain_torch")
    words = ("--only", ",".join(names), "--seeds", "0,1")
    status, out, whole = mutants(*words, "--journal", journal)
    assert status == 0
    assert "to go on" not in out
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 2 * len(names)  # each at each seed
    journal.write_bytes(b"".join(lines[:4]) + lines[4][:50])
    again, run_entry = [], run.run_entry
    monkeypatch.setattr(run, "run_entry", lambda *given: again.append(given[1].name) or run_entry(*given))
    status, out, document = mutants(*words, "--resume", journal)
    assert status == 0, out
    assert len(again) == 3
    assert without_times(document) == without_times(whole)
    assert sorted(map(line_of, journal.read_bytes().splitlines())) == sorted(map(line_of, lines))


def line_of(line):
    found = json.loads(line)
    found.get("found", {}).pop("seconds", None)
    return json.dumps(found, sort_keys=True)


def test_a_journal_is_of_the_same_question(mutants, tmp_path):
    journal = tmp_path / "run.jsonl"
    mutants("--only", "returns_zeros", "--journal", journal)
    status, out, _ = mutants("--only", "returns_zeros", "--seeds", "1", "--resume", journal)
    assert status == 2
    assert "is another run's: seeds was [0], and is [1]" in " ".join(out.split())
    journal.write_text(journal.read_text().replace('"killed"', '"x"').replace('"cases": ', '"cases": "no", "x": '))
    status, out, _ = mutants("--only", "returns_zeros", "--resume", journal)
    assert status == 2
    assert "line 2 is no kernel of a journal" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "return_zeros"), "--only: 'return_zeros' is not a kernel of field, honest (did you mean returns_zeros?)"),
        (("--corpus", "fields"), "--corpus: 'fields' is not a choice (did you mean field?)"),
        (("--only", "returns_zeros", "--ops", "silu_and_mul"), "--ops: no kernel asked for is one of silu_and_mul"),
        (("--seeds", "x"), "--seeds: 'x' is not allowed"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(mutants, words, said):
    status, out, _ = mutants(*words)
    assert status == 2
    assert said in out


def test_the_matrix_counts_kernels_by_kind_and_check():
    def record(name, kind, **caught):
        return {"corpus": "field", "name": name, "kind": kind, "killed": bool(caught), "caught": caught, "caught_beyond": {}}

    table = tables.kill_matrix([record("a", "rows", rstd=7), record("b", "rows"), record("c", "eps", rstd=1, batch=2)], "field")
    assert table.columns == ("kind", "entries", "killed", "batch", "rstd")
    assert [tuple(getattr(entry, "text", entry) for entry in row) for row in table.rows] == [
        ("rows", "2", "1", "", "1"),
        ("eps", "1", "1", "1", "1"),
        ("all", "3", "2", "1", "2"),
    ]


@pytest.mark.parametrize(
    ("reason", "check"),
    [
        ("changes from run to run: 1 element; output, row 0, column 0 is 1, then 2", "stability"),
        ("in a second call: raised ValueError: no", "stability"),
        ("the result of one call is overwritten by the next: both are in the same memory", "stability"),
        ("depends on the batch: 1 element of 1 row; output, row 0, column 0 is 1 among 8 rows, 2 in row 0 alone", "batch"),
        ("rows 1 to 7 alone: raised ValueError: no", "batch"),
        ("raised ValueError: hidden size must be a multiple of 8 (a.py:3)", "raised"),
        ("residual: 1 element overwritten, the first 1 past the end of row 7", "memory"),
        ("output shares memory with input", "memory"),
        ("was given out and returned another tensor, which differs from it in 1 of 1 elements", "memory"),
        ("returned None, not a tensor", "form"),
        ("output has dtype torch.float32, not torch.bfloat16", "form"),
        ("residual: 3 of 24 are not the rounded sum; row 0, column 1 is 0, not 1", "residual"),
        ("3 non-finite results are of another class; row 0, column 1 is 0, not nan", "class"),
        ("8 finite elements of rows with an Inf are not 0, which rstd is; row 1, column 0 is 42", "class"),
        ("4 zeros have the wrong sign; row 1, column 0 is 0, not -0", "sign"),
        ("4 of 4 rows: rstd is off; row 0 by +0.1, sums of up to 2 additions in sequence explain 1e-06", "rstd"),
        ("1 of 4 rows: no single rstd explains the row; in row 0 one element needs an error of at least +1", "rstd"),
        ("8 of 24 elements lie where no fp32 evaluation of W0 rounds to; row 0, column 1 is 0, not 1", "attainable value"),
        ("rstd leans to one side: it is off by at least +1e-06 on average over 24 rows; fp32 explains 3e-07", "bias"),
        ("900 of 4096 elements are not the correctly rounded value; fp32 explains at most 12", "rate"),
    ],
)
def test_a_reason_is_a_checks(reason, check):
    assert check_of(reason) == check


def test_a_sentence_that_no_check_says_is_unnamed_and_counted():
    assert check_of("something new") == UNKNOWN
    assert checks_of(["something new", "raised X"]) == ("raised", UNKNOWN)


def test_each_check_has_a_name_of_its_own():
    assert len({name for name, _, _ in CHECKS}) == len(CHECKS)


def test_all_means_every_corpus(monkeypatch):
    from difftest.mutants import command

    assert {corpus for corpus, _ in command._chosen("all", "", "")} == set(CORPORA)


def test_the_json_is_plain(mutants, tmp_path):
    mutants("--only", "returns_zeros")
    lines = (tmp_path / "result.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["schema"] == "numba-kernels/mutants/1"
    assert json.loads(lines[1])["part"] == "entries"

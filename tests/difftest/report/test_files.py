"""The files that a command leaves: where they go, what is refused before a run, and what closes or fails in the middle of one."""

import io
import json
import os
import sys

import pytest
from click.testing import CliRunner

from difftest import cli
from difftest.errors import LackingError, UsageError
from difftest.report import files

USUAL = (
    "--ops",
    "rmsnorm",
    "--dtypes",
    "bf16",
    "--widths",
    "3",
    "--regimes",
    "normal",
    "--cases",
    "0",
    "--device",
    "cpu",
    "--strength",
    "1",
)
LEDGER = ("ledger", "--op", "rmsnorm")


def call(*words):
    result = CliRunner().invoke(cli.main, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def words_of(*words):
    """A small run of torch, unless another candidate is named."""
    return ("difftest", *USUAL, *(() if "--candidate" in words else ("--candidate", "torch")), *words)


def small(*words):
    return call(*words_of(*words))


def refused(result, *said):
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    for text in said:
        assert text in line


# --- before the run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--json", "--html", "--junit"])
def test_a_pipe_is_refused_and_stays(tmp_path, option):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(small(option, pipe), option, "not a regular file")
    assert pipe.is_fifo()


@pytest.mark.parametrize("words", [LEDGER, ("identify", "--op", "rmsnorm", "--candidate", "torch", "--widths", 3)])
def test_the_other_commands_refuse_a_pipe_too(tmp_path, words):
    os.mkfifo(tmp_path / "pipe")
    refused(call(*words, "--json", tmp_path / "pipe"), "--json", "not a regular file")


def test_a_pipe_behind_a_link_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    refused(small("--json", tmp_path / "link"), "not a regular file")
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("there", [True, False])
def test_through_a_link_the_target_is_written_and_the_link_stays(tmp_path, there):
    target, link = tmp_path / "elsewhere" / "run.json", tmp_path / "link.json"
    target.parent.mkdir()
    if there:
        target.write_text("the old content")
    link.symlink_to(target)
    assert call(*LEDGER, "--json", link).exit_code == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["schema"] == "numba-kernels/ledger/1"
    assert [file.name for file in target.parent.iterdir()] == ["run.json"]


def test_a_link_into_a_folder_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "run.json")
    refused(small("--json", tmp_path / "link"), "--json", "no folder", "nowhere")


def test_links_that_go_round_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    refused(small("--json", tmp_path / "a"), "--json")


@pytest.mark.parametrize("option", ["--json", "--html", "--junit"])
def test_a_dash_is_no_file(option):
    refused(small(option, "-"), option, "a file is needed")


def test_the_file_that_standard_output_goes_to_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "out.txt"
    file.write_text("")
    monkeypatch.setattr(os, "fstat", lambda number, real=os.fstat: os.stat(file) if number == 1 else real(number))
    with pytest.raises(UsageError, match="standard output"):
        files.check_writable("--json", file)


def test_a_name_longer_than_names_may_be_is_refused(tmp_path):
    refused(small("--json", tmp_path / ("x" * 300)), "--json", "File name too long")


@pytest.mark.parametrize(
    ("first", "second"), [("--json", "--junit"), ("--json", "--html"), ("--json", "--plots"), ("--junit", "--failures")]
)
def test_two_options_with_one_path_are_refused(tmp_path, first, second):
    refused(small(first, tmp_path / "x", second, f"{tmp_path}/./x"), first, second)
    assert list(tmp_path.iterdir()) == []


def test_two_options_with_one_path_behind_a_link_are_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "x")
    refused(small("--json", tmp_path / "x", "--junit", tmp_path / "link"), "--json", "--junit")


def test_a_matrix_with_two_options_of_one_path_is_refused(tmp_path):
    words = ("--candidate", "torch,torch-rmsnorm", "--json", tmp_path / "x", "--markdown", tmp_path / "x")
    refused(small(*words), "--json", "--markdown")


@pytest.mark.parametrize("below", ["", "more"])
def test_failures_that_no_folder_can_hold_are_refused_before_the_run(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    refused(small("--failures", tmp_path / "file" / below), "--failures", "is not a folder")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_usual_folder_for_failures_that_cannot_be_made_costs_a_conforming_run_nothing(tmp_path, monkeypatch):
    (tmp_path / "out").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert small().exit_code == 0


# --- after the run ----------------------------------------------------------------------------------------------------


def lost(monkeypatch, *, name):
    """From now on the file of that name can't be put in its place."""

    def replace(temporary, target, real=os.replace):
        if target.name == name:
            raise OSError(28, "No space left on device")
        real(temporary, target)

    monkeypatch.setattr("difftest.report.files.Path.replace", replace)


def test_a_file_that_cannot_be_written_in_the_end_is_one_line_after_the_report_and_the_others_are_written(tmp_path, monkeypatch):
    lost(monkeypatch, name="run.json")
    result = small("--json", tmp_path / "run.json", "--junit", tmp_path / "run.xml")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[-1].startswith("conforms: ")
    assert result.stderr == f"error: {tmp_path / 'run.json'} could not be written: No space left on device\n"
    assert [file.name for file in tmp_path.iterdir()] == ["run.xml"]


def test_a_matrix_says_its_verdict_before_it_says_what_could_not_be_written(tmp_path, monkeypatch):
    lost(monkeypatch, name="m.json")
    words = ("--candidate", "torch,torch-rmsnorm", "--workers", 0, "--json", tmp_path / "m.json", "--markdown", tmp_path / "m.md")
    result = small(*words)
    assert result.exit_code == 3
    assert result.stdout.splitlines()[-1].startswith("conforms: ")
    assert len(result.stderr.splitlines()) == 1
    assert (tmp_path / "m.md").exists()


def test_a_case_that_cannot_be_saved_is_said_beside_the_difference(tmp_path, monkeypatch, broken):
    (tmp_path / "out").write_text("mine")
    monkeypatch.chdir(tmp_path)
    result = small("--candidate", broken("returns_zeros", "rmsnorm"))
    assert result.exit_code == 1
    assert "this case is not saved: out/failures could not be written: " in result.stdout


def test_each_of_several_files_is_tried_and_the_first_failure_is_the_error(tmp_path):
    def fails(path):
        raise OSError(13, "Permission denied")

    with pytest.raises(LackingError, match="a could not be written: Permission denied"):
        files.write_each(
            (tmp_path / "a", fails), (tmp_path / "b", lambda path: path.write_text("b")), (tmp_path / "c", fails), (None, fails)
        )
    assert (tmp_path / "b").exists()


def test_a_benchmark_goes_on_where_its_file_cannot_be_written_and_forgets_it_once_it_can(tmp_path):
    from difftest.bench.command import _Saver

    save = _Saver(tmp_path / "folder" / "bench.json", ("points",))
    save({"points": []})
    assert "No such file or directory" in str(save.failed)
    (tmp_path / "folder").mkdir()
    save({"points": []})
    assert save.failed is None
    assert (tmp_path / "folder" / "bench.json").exists()


# --- standard output --------------------------------------------------------------------------------------------------


@pytest.fixture
def unread(monkeypatch):
    """Runs a command whose standard output is a pipe that nobody reads; its status."""

    def run(*words):
        reader, writer = os.pipe()
        os.close(reader)
        with monkeypatch.context() as patch, open(writer, "w") as stream:
            patch.setattr(sys, "stdout", stream)
            with pytest.raises(SystemExit) as end:
                cli.main([str(word) for word in words])
        return end.value.code

    return run


def test_a_run_whose_reader_has_gone_saves_its_files_and_its_status_is_no_difference(tmp_path, unread, capfd):
    file = tmp_path / "run.json"
    assert unread(*words_of("--json", file)) == 141
    assert json.loads(file.read_text())["verdict"] == "conforms"
    assert capfd.readouterr().err == ""


def test_a_difference_is_a_difference_though_nobody_reads_of_it(tmp_path, unread, broken):
    words = ("--candidate", broken("returns_zeros", "rmsnorm"), "--failures", tmp_path / "f", "--json", tmp_path / "run.json")
    assert unread(*words_of(*words)) == 1
    assert json.loads((tmp_path / "run.json").read_text())["verdict"] == "differs"
    assert len(list((tmp_path / "f").iterdir())) == 1


@pytest.mark.parametrize("words", [("doctor",), ("--help",), ("difftest", "--help"), LEDGER])
def test_no_command_takes_a_closed_pipe_for_a_difference(unread, words):
    assert unread(*words) == 141


def test_a_run_without_any_standard_output_is_a_run(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        with pytest.raises(SystemExit) as end:
            cli.main([*LEDGER, "--json", str(tmp_path / "l.json")])
    assert end.value.code == 0
    assert (tmp_path / "l.json").exists()


def test_an_output_without_space_is_one_line_and_a_lack_of_the_environment(tmp_path, monkeypatch, capsys):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Full())
        with pytest.raises(SystemExit) as end:
            cli.main([*LEDGER, "--json", str(tmp_path / "l.json")])
    assert end.value.code == 3
    assert capsys.readouterr().err == "error: standard output: No space left on device\n"
    assert (tmp_path / "l.json").exists()

"""Files that are no case, no run, no tensors: one line that names what is wrong with them, status 2, and nothing written."""

import json
import os
import struct

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.torch import save_file

from difftest import cli, json_text
from difftest.cases import record
from difftest.cases.case import SCHEMA, Case
from difftest.errors import UsageError
from difftest.exhaustive import command
from difftest.lists import split
from difftest.options import LARGEST_SEED, MOST, WIDEST
from reference.contracts import contract

CASE = Case("fused_add_rmsnorm", "bf16", (2,), 3, "normal", 1, contract("fused_add_rmsnorm"))
SAVED = {"schema": SCHEMA, **CASE.to_json(), "candidate": "torch", "against": "torch"}
DIFFTEST = ["difftest", "--candidate", "torch", "--ops", "rmsnorm", "--dtypes", "bf16", "--widths", "3"]
DIFFTEST += ["--strength", "0", "--cases", "0"]
RUN = {"schema": "numba-kernels/difftest/2", "environment": {}, "cases": [SAVED, SAVED]}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in: what a command leaves in it is seen."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*words):
    """The one line with which the command line refuses them, status 2; no file is written by that."""
    before = sorted(os.listdir())
    result = CliRunner().invoke(cli.main, [str(word) for word in words])
    assert result.exit_code == 2, result.stderr
    assert result.stdout == ""
    assert sorted(os.listdir()) == before
    (line,) = result.stderr.splitlines()
    assert len(line) < 700
    return line


ODD = {
    "None": None,
    "True": True,
    "1.5": 1.5,
    "-1": -1,
    "10**30": 10**30,
    "text": "x",
    "half a surrogate pair": "\ud800",
    "[1.5]": [1.5],
    "{'a': 1.5}": {"a": 1.5},
    "deep": [[[[[[[[[[[[1]]]]]]]]]]]],
}
RIGHT = {  # what of that a key may hold: the rest is refused
    "seed": [],
    "width": [],
    "lead": [],
    "padding": [],
    "misaligned": [],
    "eps": ["1.5", "10**30"],
    "op": [],
    "dtype": [],
    "regime": [],
    "contract": [],
    "weights": [],
    "weight_dtype": ["None"],
    "out": [],
    "device": [],
    "given": [],
    "origin": ["text", "half a surrogate pair"],
    "candidate": [],
    "against": [],
    "stability": ["None", "{'a': 1.5}"],
}


def test_every_key_of_a_record_is_tried():
    assert set(RIGHT) | {"out_given"} == set(record.KINDS)
    assert set(CASE.to_json()) - {"rows"} <= set(record.KINDS)


@pytest.mark.parametrize("key", RIGHT)
def test_a_key_that_holds_something_else_is_named_with_what_is_allowed(here, key):
    for name, value in ODD.items():
        if name in RIGHT[key]:
            continue
        (here / "case.json").write_text(json.dumps({**SAVED, key: value}))
        line = refused("replay", "case.json")
        assert any(word in line for word in (f"{key} ", f"{key}: ", "unknown operator")), (name, line)
        assert any(word in line for word in ("allowed: ", "one of", "known: ", "buffers", "neither", "null byte")), (name, line)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": -1}, f"seed -1 is not allowed; allowed: a whole number from 0 to {LARGEST_SEED}"),
        ({"width": WIDEST + 1}, f"allowed: a whole number from 1 to {WIDEST}"),
        ({"lead": [1] * 32}, "allowed: a list of at most 31"),
        ({"lead": [MOST]}, f"lead [{MOST}], width 3: more than {MOST} elements"),
        ({"padding": {"weight": 3}}, "padding of weight: the buffers of rows are input, residual"),
        ({"misaligned": ["weights"]}, "misaligned 'weights': the buffers are input, residual, weight"),
        ({"misaligned": ["output"]}, "misaligned 'output': the buffers are input, residual, weight"),
        ({"eps": 1e-46}, "eps 1e-46 is zero in fp32"),
        ({"weight_dtype": ""}, "weight_dtype ''"),
        ({"schema": "numba-kernels/difftest-case/9"}, "its schema is 'numba-kernels/difftest-case/9', which is not read here"),
        ({"stability": {"batch_invariant": "no"}}, "batch_invariant is true or false"),
        ({"candidate": "\ud800.py:rmsnorm"}, "--candidate: no file "),
        ({"candidate": "a\0b.py:rmsnorm"}, "--candidate: no file "),
        ({"given": {"values": {"input": 5, "residual": "", "weight": ""}}}, "values of input: 5 is not allowed"),
        (
            {"given": {"values": {"input": "3f80*7", "residual": "", "weight": ""}}},
            "values of input: 7 elements, the call takes 6",
        ),
        ({"given": {"file": "a\0b", "sha256": "0"}}, "null byte"),
        ({"given": {"file": ".", "sha256": "0"}}, "Is a directory"),
        ({"given": {"values": {"a\x1eb": ""}}}, "values of 'a\\x1eb': no name of a tensor"),
    ],
)
def test_a_case_that_is_none_is_one_line(here, change, said):
    (here / "case.json").write_text(json.dumps({**SAVED, **change}))
    assert said in refused("replay", "case.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON: Expecting value"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
        (json.dumps(SAVED)[:-1] + ', "op": "rmsnorm"}', "the key 'op' stands twice"),
        (json.dumps(SAVED).replace("1e-06", "NaN"), "NaN is no number"),
        (json.dumps(SAVED).replace("1e-06", "-Infinity"), "-Infinity is no number"),
        (json.dumps(SAVED).replace("1e-06", "1e999"), "1e999 is not finite"),
        (json.dumps(SAVED).replace("1e-06", "1" * 5000), "digits"),
        (json.dumps(SAVED)[:50], "is not JSON"),
        ("5", "5 is no case"),
        ("[]", "[] is no case"),
        ("null", "None is no case"),
        (b"\xff\xfe", "byte 0 is no UTF-8"),
        (json.dumps(SAVED).encode("utf-16"), "byte 0 is no UTF-8"),
        (b"\0\0", "is not JSON"),
    ],
)
@pytest.mark.parametrize("reader", ["replay", "--baseline"])
def test_a_file_that_holds_no_document_is_one_line(here, text, said, reader):
    (here / "case.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    if reader == "replay":
        line = refused("replay", "case.json")
    else:
        line = refused(*DIFFTEST, "--baseline", "case.json")
        said = said.removeprefix("is not JSON: ").replace("is not JSON", "JSON")
        said = "is not a run's JSON" if "is no case" in said else said
    assert said in line


@pytest.mark.parametrize("index", ["²", "-1", "", "x", "2", "99999999999999999999", "9" * 200, "0x1", "1.0", " 1", "٣"])
def test_an_index_that_a_run_has_not_is_one_line(here, index):
    (here / "run.json").write_text(json.dumps(RUN))
    assert "it holds 2 cases; name one as run.json#INDEX, from 0 to 1" in refused("replay", f"run.json#{index}")


@pytest.mark.parametrize(
    ("document", "spec", "said"),
    [
        (SAVED, "run.json#0", "#0 is not allowed; allowed: an index into a run's cases, and this is no run"),
        ({**RUN, "cases": []}, "run.json#0", "it holds no case"),
        ({**RUN, "cases": {}}, "run.json", "it holds no case"),
        ({**RUN, "cases": ["x"]}, "run.json#0", "'x' is no case"),
        (RUN, "nothing.json", "nothing.json: No such file or directory"),
        (RUN, "x" * 300, "File name too long"),
        (RUN, "a\0b", "a NUL is in no name"),
        (RUN, ".", "Is a directory"),
    ],
)
def test_what_names_no_case_is_one_line(here, document, spec, said):
    (here / "run.json").write_text(json.dumps(document))
    assert said in refused("replay", spec)


def test_a_file_with_a_number_sign_in_its_name_is_read(here):
    (here / "run#1.json").write_text(json.dumps(SAVED))
    result = CliRunner().invoke(cli.main, ["replay", "run#1.json"])
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: run.update(cases={}), "its cases are no list"),
        (lambda run: run.update(environment=[]), "its environment no object"),
        (lambda run: run["cases"][0].pop("seed"), "has a case that is none, 0: "),
        (lambda run: run["cases"][1].update(seed="x"), "has a case that is none, 1: seed 'x' is not allowed"),
        (lambda run: run["cases"][1].pop("against"), "has a case that is none, 1: KeyError: 'against'"),
        (lambda run: run["cases"][1].update(outputs=[]), "has a case that is none, 1: AttributeError"),
        (lambda run: run["cases"][1].update(outputs={"output": {"max_ulp": 0}}), "1: KeyError: 'mismatches'"),
        (lambda run: run["cases"][1].update(statistics={"differing_rate": []}), "1: TypeError"),
        (lambda run: run["cases"][1].update(statistics={"differing_rate": "high"}), "could not convert"),
    ],
)
def test_a_baseline_with_a_case_that_is_none_is_one_line(here, change, said):
    run = json.loads(json.dumps(RUN))
    for case in run["cases"]:
        case |= {"verdict": "conforms", "outputs": {}, "statistics": {}}
    change(run)
    (here / "run.json").write_text(json.dumps(run))
    assert said in refused(*DIFFTEST, "--baseline", "run.json")


def npz(path):
    np.savez_compressed(path, input=np.ones((4, 300), np.float32), weight=np.ones(300, np.float32))
    return path.read_bytes()


def safetensors(path):
    import torch

    save_file({"input": torch.ones(4, 300), "weight": torch.ones(300)}, path)
    return path.read_bytes()


@pytest.mark.parametrize("make", [npz, safetensors])
def test_tensors_cut_short_or_changed_in_one_byte_are_refused_or_read(here, make):
    """At every 41st length, and with every 41st byte changed: one line and status 2, or the run of another file's values."""
    whole = make(here / f"x.{make.__name__}")
    path, words = here / f"x.{make.__name__}", (*DIFFTEST, "--inputs")
    from difftest.cases import file

    lines = []
    for place in range(0, len(whole), 41):
        for content in (whole[:place], whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]):
            path.write_bytes(content)
            try:
                file.load(path, file.digest(path))
            except ValueError as error:
                lines.append(str(error))
    assert len(lines) >= len(whole) // 41  # every cut, and what of the changes the format can tell
    assert [line for line in lines if "\n" in line or str(path) not in line] == []
    path.write_bytes(whole[:-40])
    assert f"--inputs: {path}" in refused(*words, path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.npz", b"", "is no .npz file"),
        ("x.npz", b"\x93NUMPY\x01\x00", "is no .npz file"),
        ("x.safetensors", b"", "is no safetensors file"),
        ("x.safetensors", struct.pack("<Q", 2**60) + b"{}", "is no safetensors file"),
        ("x.safetensors", struct.pack("<Q", 2) + b"[]", "is no safetensors file"),
        ("x.txt", b"", "is neither of .safetensors, .npz"),
    ],
)
def test_what_holds_no_tensors_is_one_line(here, name, content, said):
    (here / name).write_bytes(content)
    assert said in refused(*DIFFTEST, "--inputs", name)


def test_one_array_that_is_no_archive_is_one_line(here):
    np.save(here / "x.npy", np.ones(3, np.float32))
    (here / "x.npy").rename(here / "x.npz")
    assert "x.npz is no .npz file" in refused(*DIFFTEST, "--inputs", "x.npz")


@pytest.mark.parametrize("option", ["--inputs", "--baseline"])
@pytest.mark.parametrize("name", [".", "nothing.npz", "a\0b.npz"])
def test_a_folder_and_a_name_that_is_none_are_one_line(here, option, name):
    line = refused(*DIFFTEST, option, name)
    assert f"{option}: " in line or "'a\\x00b.npz': a NUL is in no name" in line


@pytest.mark.slow
def test_the_state_of_an_exhaustive_run_that_lacks_a_part_is_one_line(here):
    words = ["exhaustive", "--candidate", "torch", "--ops", "silu_and_mul", "--dtypes", "bf16", "--share", 2**-20]
    words += ["--device", "cpu", "--resume", "s.json"]
    assert CliRunner().invoke(cli.main, [str(word) for word in words]).exit_code == 0
    state, said = json.loads((here / "s.json").read_text()), []
    for key in state["tasks"][0]:
        if key in ("seed", "slices_done"):
            continue
        broken = json.loads(json.dumps(state))
        broken["tasks"][0][key] = {}
        (here / "s.json").write_text(json.dumps(broken))
        try:
            command._earlier(here / "s.json", {})  # read, where nothing needs the key
        except UsageError as error:
            said.append(f"{key}: {error}")
    assert len(said) >= 8
    assert [line for line in said if "s.json is no whole state of an exhaustive run: " not in line] == []
    for key in ("tasks", "request", "stopped"):
        (here / "s.json").write_text(json.dumps({name: value for name, value in state.items() if name != key}))
        assert f"--resume: s.json is no whole state of an exhaustive run: KeyError: '{key}'" in refused(*words)


def test_a_saved_case_that_is_none_is_passed_over_in_a_folder_of_failures(here):
    (here / "failures").mkdir()
    for number, content in enumerate((b"", b"\xff", b"[" * 100_000, json.dumps({**SAVED, "seed": "x"}).encode())):
        (here / "failures" / f"{number}.json").write_bytes(content)
    words = ["difftest", "--candidate", "torch", "--ops", "fused_add_rmsnorm", "--dtypes", "bf16", "--widths", "3", "--regimes"]
    words += ["normal", "--cases", "0", "--strength", "0", "--failures", "failures", "--device", "cpu"]
    assert CliRunner().invoke(cli.main, words).exit_code == 0


def test_a_comma_in_the_path_of_a_candidate_parts_nothing(here):
    folder = here / "a,b"
    folder.mkdir()
    (folder / "c,d.py").write_text(
        "import torch\n\n\ndef rmsnorm(input, weight, eps):\n"
        "    return torch.nn.functional.rms_norm(input.float(), input.shape[-1:], weight.float(), eps).to(input.dtype)\n"
    )
    spec = "a,b/c,d.py:rmsnorm"
    assert split(f"torch,{spec},numba") == ["torch", spec, "numba"]
    assert split("a,b/nothing.py:rmsnorm") == ["a", "b/nothing.py:rmsnorm"]
    small = ["--dtypes", "fp32", "--widths", "3", "--regimes", "normal", "--device", "cpu"]
    one = CliRunner().invoke(cli.main, ["difftest", "--candidate", spec, "--cases", "0", "--strength", "0", *small])
    assert (one.exit_code, one.stderr) == (0, "")
    assert spec in one.stdout
    two = CliRunner().invoke(cli.main, ["difftest", "--candidate", f"torch,{spec}", "--ops", "rmsnorm", "--workers", "0", *small])
    assert two.exit_code in (0, 1), two.stderr
    assert "2 implementations" in two.stdout


def test_a_whole_number_of_any_length_is_told_in_a_line():
    with pytest.raises(ValueError, match="a number of thousands of digits is not allowed; allowed: a whole number"):
        record.check({**SAVED, "seed": 10**5000})


def test_a_document_is_read_as_it_is_written():
    assert json_text.parse(json.dumps(RUN)) == RUN
    assert json_text.parse('{"a": [1, -0.5, 1e308, null, true, "\\ud800"]}') == {"a": [1, -0.5, 1e308, None, True, "\ud800"]}

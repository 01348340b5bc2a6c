"""The command line from outside: exit statuses, one-line errors, the files that it leaves, replaying a case."""

import builtins
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from difftest import cli
from difftest.cases import Case, Request, generate
from difftest.mutants import plain
from reference.contracts import contract

ROOT = Path(__file__).parent.parent
BROKEN = Path(__file__).parent / "difftest" / "broken"
PLAIN = Path(plain.__file__)
ZEROS = f"{BROKEN / 'returns_zeros'}.py:rmsnorm"
SMALL = {"--ops": "rmsnorm", "--dtypes": "bf16", "--widths": "3,64", "--cases": "0", "--strength": "1", "--device": "cpu"}
EMPTY = ("--ops", "--dtypes", "--rows", "--regimes", "--candidate", "--against", "--contract", "--device")


def call(*words):
    result = CliRunner().invoke(cli.main, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def small(*words, candidate="torch"):
    """A small run, with the words given in place of its own."""
    usual = {"--candidate": candidate, **SMALL}
    return call("difftest", *[word for option in usual if option not in words for word in (option, usual[option])], *words)


@pytest.mark.parametrize(
    ("words", "named", "allowed"),
    [
        (["--widths", "0"], "--widths: '0'", "from 1 up"),
        (["--widths", "64,x"], "--widths: 'x'", "from 1 up"),
        (["--widths", ""], "--widths", "names nothing"),
        (["--rows", "-1"], "--rows: '-1'", "from 0 up"),
        (["--rows", "1.5"], "--rows: '1.5'", "from 0 up"),
        (["--ops", "rmsnrm"], "--ops: 'rmsnrm'", "did you mean rmsnorm?"),
        (["--dtypes", "fp8"], "--dtypes: 'fp8'", "fp16, bf16, fp32"),
        (["--regimes", "nrmal"], "--regimes: 'nrmal'", "did you mean normal?"),
        (["--regimes", "gate_sweep"], "--regimes", "applies"),
        (["--against", "flashinfr"], "--against: 'flashinfr'", "did you mean flashinfer?"),
        (["--candidate", "numbaa"], "--candidate: 'numbaa'", "did you mean numba?"),
        (["--candidate", "/no/file.py:rmsnorm"], "--candidate", "no file"),
        (["--candidate", f"{BROKEN / 'plain'}.py"], "--candidate", ":FUNCTION"),
        (["--candidate", f"{PLAIN}:rmsnrm"], "--candidate: 'rmsnrm'", "did you mean rmsnorm?"),
        (["--contract", "R9W0"], "--contract: 'R9W0'", "W0, W1"),
        (["--contract", "S1"], "--contract: 'S1'", "W0, W1"),
        (["--device", "gpu"], "--device: 'gpu'", "auto, cpu, cuda"),
        (["--device", "cuda:x"], "--device: 'cuda:x'", "cuda:N"),
        (["--eps", "-1"], "--eps", "-1.0"),
        (["--eps", "small"], "--eps", "small"),
        (["--seed", "-1"], "--seed", "-1"),
        (["--cases", "-1"], "--cases", "-1"),
        (["--time-budget", "-1"], "--time-budget", "-1"),
        (["--json", "/no/folder/x.json"], "--json", "no folder"),
        (["--html", "/"], "--html", "is a folder"),
        (["--widht", "3"], "--widht", "--widths"),
        (["--widths", "1073741825"], "--widths: '1073741825'", "1073741824"),
        (["--widths", "9" * 5000], "--widths", "1073741824"),
        (["--rows", "99999999999999999999"], "--rows: '99999999999999999999'", "the largest allowed"),
        (["--seed", str(10**30)], "--seed", "the largest allowed"),
        (["--contract", "W1,W0"], "'W1' and 'W0'", "rmsnorm"),
        (["--ops", "fused_add_rmsnorm", "--contract", "R0W0,W0,R1W0"], "--contract: 'W0'", "R0W0, R1W0"),
        (["--ops", "fused_add_rmsnorm", "--contract", "R0W0,R1W0"], "'R0W0' and 'R1W0'", "fused_add_rmsnorm"),
        *(([option, ""], option, "names nothing") for option in EMPTY),
    ],
)
def test_bad_usage_is_one_line_that_names_the_option_and_what_is_allowed(words, named, allowed):
    result = small(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert named in result.stderr
    assert allowed in result.stderr


@pytest.fixture
def asked(monkeypatch):
    """What `difftest` was asked for: the option's text as the command gets it."""
    seen = {}
    monkeypatch.setattr("difftest.commands.difftest.difftest", lambda **options: seen.update(options) or 0)
    return seen


LISTED = {
    "--ops": ("ops", "rmsnorm", "silu_and_mul"),
    "--dtypes": ("dtypes", "bf16", "fp32"),
    "--widths": ("widths", "1", "111"),
    "--rows": ("rows", "2", "3"),
    "--regimes": ("regime_names", "normal", "zeros"),
    "--candidate": ("candidate", "numba", "torch"),
    "--against": ("against", "torch", "torch-rmsnorm"),
    "--contract": ("contract", "W0", "S1"),
}


@pytest.mark.parametrize("option", LISTED)
def test_a_list_has_commas_or_blanks_or_is_given_in_several_options(asked, option):
    name, one, two = LISTED[option]
    for words in ([f"{one},{two}"], [f"{one} {two}"], [f" {one}, {two} "], [one, two], [f"{one},", two]):
        assert call("difftest", *(word for each in words for word in (option, each))).exit_code == 0
        assert asked[name] == f"{one},{two}", words


@pytest.mark.parametrize("option", LISTED)
def test_one_word_of_a_list_that_names_nothing_is_an_error(option):
    _, one, _ = LISTED[option]
    result = call("difftest", option, one, option, " ")
    assert result.exit_code == 2
    assert result.stderr == f"error: {option}: '' names nothing\n"


def test_a_list_that_is_left_out_is_empty_or_has_its_default(asked):
    call("difftest")
    assert {name: asked[name] for name, *_ in LISTED.values()} == {
        **dict.fromkeys(("ops", "dtypes", "widths", "rows", "regime_names", "against", "contract"), ""),
        "candidate": "numba",
    }
    assert asked["defaults"]["--widths"] == "1,3,111,4096"
    assert asked["matrix_defaults"]["--widths"] == "111,4096"


def test_a_file_with_blanks_in_its_path_is_one_candidate(asked, tmp_path):
    file = tmp_path / "my own kernels.py"
    file.write_text("")
    call("difftest", "--candidate", f"{file}:rmsnorm")
    assert asked["candidate"] == f"{file}:rmsnorm"
    call("difftest", "--candidate", f"{file}:rmsnorm", "--candidate", "torch numba")
    assert asked["candidate"] == f"{file}:rmsnorm,torch,numba"


@pytest.mark.parametrize("words", [["--widths", "3", "--widths", "64"], ["--widths", "3 64"], ["--widths", "3,64"]])
def test_a_run_of_two_widths_has_cases_of_both_however_they_are_spelled(tmp_path, words):
    file = tmp_path / "run.json"
    assert small(*words, "--rows", "2", "--regimes", "normal", "--json", file).exit_code == 0
    assert json.loads(file.read_text())["request"]["widths"] == [3, 64]


@pytest.mark.parametrize(
    ("command", "option"), [("ledger", "--op"), ("bench", "--shapes"), ("bench", "--peers"), ("identify", "--widths")]
)
def test_the_lists_of_other_commands_are_read_alike(command, option):
    assert isinstance(next(p for p in cli.main.commands[command].params if option in p.opts), cli.Listed)


def test_the_help_imports_neither_torch_nor_numpy():
    code = "import sys; from difftest.cli import main\ntry: main(['difftest', '--help'])\nexcept SystemExit: pass\n"
    code += "print({'torch', 'numpy', 'numba', 'rich'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.stdout.splitlines()[-1] == "set()"


def test_the_script_in_the_folder_is_the_installed_command():
    import tomllib

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"numba-kernels": "difftest.cli:main"}
    assert "from difftest.cli import main" in (ROOT / "cli.py").read_text()


WITHOUT = """
import sys
class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
"""


@pytest.mark.parametrize(
    ("library", "words"),
    [("torch", ["difftest"]), ("torch", ["ledger"]), ("click", [])],
)
def test_a_library_that_is_not_installed_is_one_line_and_status_3(tmp_path, library, words):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT.format(library=library))
    run = subprocess.run(
        [sys.executable, "cli.py", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stderr == f"error: {library} is not installed: pip install {library}, or pip install -e . for all that is needed\n"
    assert (run.returncode, run.stdout) == (3, "")


def test_a_contract_spelled_twice_and_one_of_each_family_are_no_contradiction():
    words = ["--ops", "rmsnorm,silu_and_mul", "--contract", "W1,w1,S1", "--regimes", "normal,gate_sweep"]
    assert small(*words).exit_code == 0


def test_widths_go_as_far_as_the_kernels_do():
    from difftest.options import WIDEST
    from numba_kernels.runtime import arguments

    assert WIDEST == arguments.WIDEST


@pytest.mark.parametrize("candidate", ["torch", "torch,torch-rmsnorm"])
def test_rows_that_no_memory_holds_are_one_line_before_the_run(candidate):
    rows = 2**40  # of 64 fp32 numbers: more than a process can address, however freely the system lends memory
    result = small("--rows", rows, candidate=candidate)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "not enough memory" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory: ask"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"), "not enough memory for 2.00 GiB more: ask"),
        (
            RuntimeError(
                "the tester failed in X:\n  ...\nDefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."
            ),
            "8 b",
        ),
    ],
)
def test_memory_that_runs_out_in_the_middle_is_one_line(monkeypatch, error, said):
    def fails(*words):
        raise error

    monkeypatch.setattr("difftest.run.session.run", fails)
    result = small()
    assert result.exit_code == 3
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_matrix_without_references_is_every_pair_of_its_candidates(tmp_path):
    file = tmp_path / "m.json"
    names = "torch:W0,torch:W1,torch-rmsnorm"
    result = call(
        "difftest", "--ops", "rmsnorm", "--candidate", names, "--widths", "3", "--workers", "0", "--device", "cpu", "--json", file
    )
    assert "3 implementations, 3 pairs" in result.stdout
    assert list(json.loads(file.read_text())["providers"]) == names.split(",")


def test_a_matrix_of_one_implementation_is_an_error_of_its_candidates():
    result = small(candidate="torch,torch")
    assert result.exit_code == 2
    assert result.stderr == "error: --candidate: a matrix needs two different implementations\n"


def test_identify_says_nothing_of_the_version_of_a_file():
    file = f"{BROKEN / 'plain'}.py:rmsnorm"
    result = call("identify", "--candidate", file, "--widths", "3", "--device", "cpu")
    assert result.stdout.splitlines()[0] == file


def test_the_last_line_of_identify_is_the_contract_whatever_a_candidate_raises(tmp_path):
    file = tmp_path / "loud.py"
    file.write_text("def rmsnorm(input, weight, eps):\n    raise RuntimeError('no\\n[kernel]\\r image\\x1b[2J ' + 'x' * 5000)\n")
    result = call("identify", "--candidate", f"{file}:rmsnorm", "--widths", "3", "--device", "cpu")
    assert result.exit_code == 1
    last = result.stdout.splitlines()[-1]
    assert last.startswith("contract: none (at width 3 it raised RuntimeError: no [kernel] image [2J xxx")
    assert len(last) < 330


def test_an_unknown_command_is_one_line_with_the_nearest_one():
    result = call("difftes")
    assert result.exit_code == 2
    assert "did you mean difftest?" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_candidate_file_that_does_not_import_is_one_line_with_its_error(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("import a_library_that_is_not_there\n")
    result = small(candidate=f"{file}:rmsnorm")
    assert result.exit_code == 2
    assert "a_library_that_is_not_there" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_gpu_that_is_not_there_is_a_lack_of_the_environment(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = small("--device", "cuda")
    assert result.exit_code == 3
    assert len(result.stderr.splitlines()) == 1


def test_a_candidate_that_is_not_installed_is_a_lack_of_the_environment():
    result = small(candidate="flashinfer")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: --candidate: flashinfer can't run on cpu: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "library", "candidate"), [("--html", "jinja2", "torch"), ("--plots", "matplotlib", "torch,torch-rmsnorm")]
)
def test_a_report_whose_library_is_missing_is_one_line_before_the_run(monkeypatch, tmp_path, option, library, candidate):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == library else real(name, *rest))
    result = small(option, tmp_path / "x", candidate=candidate)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert library in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_no_words_show_the_commands():
    result = call()
    assert result.exit_code == 2
    assert "difftest" in result.stdout
    assert "replay" in result.stdout


def test_the_help_says_what_the_exit_statuses_mean():
    for command in ("difftest", "replay", "doctor"):
        assert "1 a difference was found" in call(command, "--help").stdout


def test_json_holds_what_the_schema_promises(tmp_path):
    file = tmp_path / "run.json"
    assert small("--ops", "rmsnorm,fused_add_rmsnorm", "--json", file).exit_code == 0
    document = json.loads(file.read_text())
    assert document["schema"] == "numba-kernels/difftest/2"
    assert document["verdict"] == "conforms"
    assert {"python", "torch", "numba", "numba-cuda", "numpy", "device"} <= document["environment"].keys()
    for case in document["cases"]:
        wanted = {"op", "dtype", "rows", "width", "regime", "seed", "device", "candidate", "against", "verdict", "outputs"}
        assert wanted <= case.keys()
        assert case["verdict"] == "conforms"
        assert list(case["outputs"]) == (["output", "residual"] if case["op"] == "fused_add_rmsnorm" else ["output"])
        for output in case["outputs"].values():
            assert output["elements"] == case["rows"] * case["width"]
            assert output["mismatches"] == sum(n for ulp, n in output["histogram"].items() if ulp != "0")
            assert output["max_ulp"] == max((abs(int(ulp)) for ulp in output["histogram"]), default=0)


def test_every_case_records_its_eps(tmp_path):
    file = tmp_path / "run.json"
    assert small("--eps", "1e-4", "--regimes", "small_mean_square", "--strength", "0", "--json", file).exit_code == 0
    assert {case["eps"] for case in json.loads(file.read_text())["cases"]} == {1e-4}
    small("--failures", tmp_path / "failures", "--strength", "0", candidate=ZEROS)
    (saved,) = (tmp_path / "failures").iterdir()
    assert json.loads(saved.read_text())["eps"] == 1e-6


def test_json_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "run.json"
    file.write_text("the old content")
    monkeypatch.setattr("difftest.report.files.Path.replace", lambda *words: (_ for _ in ()).throw(OSError("disk full")))
    result = small("--json", file)
    assert result.exit_code == 3
    assert result.stderr == f"error: {file} could not be written: disk full\n"
    assert file.read_text() == "the old content"
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_difference_leaves_a_case_that_replays_to_the_same_difference(tmp_path):
    file = tmp_path / "run.json"
    result = small("--failures", tmp_path / "failures", "--json", file, candidate=ZEROS)
    assert result.exit_code == 1
    (saved,) = (tmp_path / "failures").iterdir()
    assert f"python cli.py replay {saved}" in result.stdout
    again = tmp_path / "again.json"
    assert call("replay", saved, "--failures", tmp_path / "more", "--json", again).exit_code == 1
    (replayed,) = json.loads(again.read_text())["cases"]
    assert replayed in json.loads(file.read_text())["cases"]


def test_a_conforming_run_leaves_no_case_behind_though_some_elements_are_off(tmp_path):
    file = tmp_path / "run.json"
    words = ["--ops", "silu_and_mul", "--dtypes", "fp32", "--json", file, "--failures", tmp_path / "failures"]
    assert small(*words, candidate=f"{BROKEN / 'plain'}.py:silu_and_mul").exit_code == 0
    assert sum(case["outputs"]["output"]["mismatches"] for case in json.loads(file.read_text())["cases"]) > 0
    assert not (tmp_path / "failures").exists()


def test_a_saved_case_can_be_replayed_with_another_candidate(tmp_path):
    small("--failures", tmp_path, candidate=ZEROS)
    (saved,) = tmp_path.iterdir()
    assert call("replay", saved, "--candidate", "torch").exit_code == 0


def test_a_case_of_a_run_is_replayed_by_its_index(tmp_path):
    file = tmp_path / "run.json"
    small("--json", file)
    assert call("replay", f"{file}#0").exit_code == 0
    result = call("replay", f"{file}#99999")
    assert result.exit_code == 2
    assert "#INDEX" in result.stderr


@pytest.mark.parametrize("schema", ["numba-kernels/difftest-case/3", "numba-kernels/difftest/9", "numba-kernels/matrix/1", 3])
@pytest.mark.parametrize("index", ["", "#0"])
def test_a_file_of_another_version_is_refused_in_a_line_that_names_it(tmp_path, schema, index):
    file = tmp_path / "old.json"
    record = Case("rmsnorm", "bf16", (4,), 64, "normal", 1, contract("rmsnorm")).to_json()
    file.write_text(json.dumps({"schema": schema, "cases": [record], **record}))
    result = call("replay", f"{file}{index}")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        f"error: CASE: {file}: its schema is {schema!r}, which is not read here; read is numba-kernels/"
    )
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("content", ["", "[1, 2]", "{}", '{"op": "rmsnorm"}', '{"cases": []}'])
def test_a_file_that_holds_no_case_is_one_line(tmp_path, content):
    file = tmp_path / "case.json"
    file.write_text(content)
    result = call("replay", file)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_a_case_file_that_is_not_there_is_one_line():
    result = call("replay", "/no/case.json")
    assert result.exit_code == 2
    assert result.stderr == "error: CASE: /no/case.json: No such file or directory\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--cases", "30", "--widths", "3", "--regimes", "zeros,outliers"],
        *(pytest.param(words, marks=pytest.mark.slow) for words in ([], ["--seed", "7", "--rows", "2"])),
    ],
)
def test_the_command_in_the_report_finds_the_worst_case_again(tmp_path, words):
    result = small("--failures", tmp_path, *words, candidate=ZEROS)
    (saved,) = tmp_path.iterdir()
    worst = json.loads(saved.read_text())
    line = next(line for line in result.stdout.splitlines() if "and its neighbours: " in line)
    command = shlex.split(line.partition("and its neighbours: ")[2])
    file = tmp_path / "again.json"
    assert call(*command[2:], "--json", file, "--failures", tmp_path / "more").exit_code == 1
    worst.pop("schema")
    assert any({**case, "origin": ""} == {**worst, "origin": ""} for case in json.loads(file.read_text())["cases"])


def test_junit_names_failures_and_skips(tmp_path):
    file = tmp_path / "junit.xml"
    small("--junit", file, "--against", "torch,flashinfer", "--failures", tmp_path / "f", candidate=ZEROS)
    suites = {suite.get("name"): suite for suite in ElementTree.parse(file).getroot()}
    tested, missing = suites["rmsnorm.bf16.torch"], suites["rmsnorm.bf16.flashinfer"]
    assert int(tested.get("failures")) == len(tested.findall(".//failure")) > 0
    assert int(missing.get("skipped")) == int(missing.get("tests")) == len(missing.findall(".//skipped")) > 0


def test_html_is_one_page_that_needs_nothing_else(tmp_path):
    file = tmp_path / "report.html"
    small("--html", file, "--failures", tmp_path / "f", candidate=ZEROS)
    page = file.read_text()
    assert "differs" in page
    assert "returns_zeros.py:rmsnorm" in page
    assert "src=" not in page
    assert page.count("href=") == page.count('href="#')


def test_plots_are_one_picture_for_each_operator_dtype_and_reference(tmp_path):
    small("--plots", tmp_path / "plots", "--failures", tmp_path / "f", candidate=ZEROS)
    (picture,) = (tmp_path / "plots").iterdir()
    assert picture.name == "rmsnorm-bf16-torch.svg"
    assert "</svg>" in picture.read_text()


def test_the_histogram_of_a_difference_is_printed_with_its_bits(tmp_path):
    out = small("--failures", tmp_path, candidate=ZEROS).stdout
    assert "rmsnorm bf16 against torch: output" in out
    assert "█" in out
    assert "0x" in out


def test_doctor_names_every_package_and_provider(monkeypatch):
    result = call("doctor")
    assert result.exit_code == 0
    for name in ("torch", "numba", "numba-cuda", "numpy", "ml_dtypes", "flashinfer"):
        assert name in result.stdout


def test_doctor_names_the_cure_for_a_numpy_that_breaks_numba_cuda(monkeypatch):
    import difftest.commands.doctor

    monkeypatch.setattr(difftest.commands.doctor, "version_of", lambda package: "2.5.1" if package == "numpy" else "1.0")
    assert "numpy<2.5" in call("doctor").stdout


def test_the_command_line_starts_without_importing_torch():
    """Help and spelling errors answer at once: torch takes seconds to import."""
    code = "import sys, cli; assert not {'torch', 'numba', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_reports_need_no_optional_library(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.partition(".")[0] in ("matplotlib", "jinja2"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert small("--rows", "2", "--regimes", "normal").exit_code == 0


@pytest.mark.parametrize("seconds", [1.6, *(pytest.param(seconds, marks=pytest.mark.slow) for seconds in (0.8, 3.2))])
def test_an_interrupt_at_any_time_is_one_line_and_status_130(seconds):
    """The first seconds go into imports, here and in the server that workers are forked from."""
    command = [sys.executable, "cli.py", "difftest", "--ops", "rmsnorm"]
    where = ROOT
    with subprocess.Popen(
        command, cwd=where, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        time.sleep(seconds)
        os.killpg(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, out
    assert "Traceback" not in out + err
    assert err == "error: interrupted\n" or "interrupted: " in out


def test_sigterm_while_modules_are_imported_is_one_line_and_status_130():
    """Sent once the heaviest import has begun."""
    code = """if True:
        import importlib.abc, os, signal, sys, cli
        class Finder(importlib.abc.MetaPathFinder):
            def find_spec(self, name, *rest):
                if name == "torch":
                    os.kill(os.getpid(), signal.SIGTERM)
        sys.meta_path.insert(0, Finder())
        cli.main(["difftest", "--candidate", "torch"])
    """
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "error: interrupted\n")


def test_sigterm_after_the_imports_ends_as_an_interrupt_does(monkeypatch):
    monkeypatch.setattr("difftest.commands.difftest.generate", lambda request: os.kill(os.getpid(), signal.SIGTERM))
    result = small()
    assert result.exit_code == 130
    assert result.stderr == "error: interrupted\n"


def test_an_interrupt_before_there_is_anything_to_keep_is_one_line(monkeypatch):
    def interrupted(request):
        raise KeyboardInterrupt

    monkeypatch.setattr("difftest.commands.difftest.generate", interrupted)
    result = small()
    assert result.exit_code == 130
    assert result.stderr == "error: interrupted\n"


def test_a_junit_file_of_a_run_that_ended_early_has_an_error(tmp_path):
    file = tmp_path / "junit.xml"
    small("--junit", file, "--time-budget", "0")
    (error,) = ElementTree.parse(file).getroot().findall(".//testcase/error")
    assert "out of time: " in error.get("message")


def test_a_run_that_a_crash_cut_short_does_not_say_that_time_ran_out():
    from difftest.report import summary
    from difftest.run import session
    from difftest.run.check import Result

    cases = list(generate(Request({"rmsnorm": contract("rmsnorm")}, ["bf16"], [3], rows=[4], regimes=["normal"])))[:1]
    died = Result(cases[0], "mine", "torch", (f"{session.DIED} (exit code -9)",))
    outcome = session.Outcome([died], not_run=2)
    assert summary.early(outcome) == "a process died: 2 cases not run"
    assert summary.early(session.Outcome(not_run=2)) == "out of time: 2 cases not run"


def test_an_error_in_a_candidate_is_named_with_its_place(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def rmsnorm(x, weight, eps):\n    return undefined\n")
    result = small(candidate=f"{file}:rmsnorm")
    assert result.exit_code == 1
    assert "raised NameError: name 'undefined' is not defined (mine.py:2)" in result.output

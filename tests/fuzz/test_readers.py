"""Readers of cases, runs, JSON and tensors, given what is none: they read it, or refuse it with their own error in one line."""

import io
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import strategies as st
from safetensors.torch import save

from difftest import cli, errors, json_text
from difftest.cases import Case, file
from difftest.cases.given import Values
from difftest.mutants import journal as mutants_journal
from difftest.mutants.found import Found
from difftest.report import jsonl, record
from difftest.report.baseline import Baseline
from difftest.run import journal as journals
from difftest.run.check import Skip, check
from difftest.run.session import Outcome
from reference import providers
from reference.contracts import contract

from .fuzzing import JSON, TEXTS, broken, changed, fuzzed

CASE = Case("fused_add_rmsnorm", "bf16", (2,), 3, "normal", 1, contract("fused_add_rmsnorm"))
GIVEN = Case(
    "rmsnorm",
    "fp16",
    (2,),
    3,
    "normal",
    1,
    contract("rmsnorm"),
    given=Values.of(Case("rmsnorm", "fp16", (2,), 3, "normal", 1, contract("rmsnorm")).inputs()),
)
SAVED = {"schema": "numba-kernels/difftest-case/2", **CASE.to_json(), "candidate": "torch", "against": "torch", "stability": None}
RESULT = {"verdict": "conforms", "outputs": {"output": {"mismatches": 0, "max_ulp": 1, "classes": {"nan": 0}}}}
RESULT |= {"statistics": {"differing_rate": 0.5, "rstd_error_max": 1.0}}
RUN = {"schema": "numba-kernels/difftest/2", "environment": {"torch": "2"}, "cases": [{**SAVED, **RESULT}]}
MOST = 10**5  # elements that a case may have to be drawn here


def in_one_line(error):
    assert len(str(error).splitlines()) <= 1, error
    str(error).encode("utf-8", "backslashreplace")


def written(content, name="x.json"):
    """A folder, and the file in it."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / name
    path.write_bytes(content)
    return folder, path


@fuzzed(changed(SAVED) | changed({**SAVED, **GIVEN.to_json()}), few=80)
def test_a_record_is_a_case_or_is_refused(value):
    try:
        case = Case.from_json(value)
    except ValueError as error:
        in_one_line(error)
        return
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case
    if case.rows * case.width < MOST:
        try:
            drawn = case.inputs()
        except ValueError as error:
            in_one_line(error)
        else:
            assert set(drawn) == set(case.operator.inputs)


@fuzzed(st.binary(max_size=200) | broken(json.dumps(SAVED).encode()) | broken(json.dumps(RUN).encode()), TEXTS, few=40)
def test_a_file_of_a_case_is_read_or_refused(content, index):
    folder, path = written(content)
    with folder:
        for spec in (str(path), f"{path}#0", f"{path}#{index}"):
            try:
                case, _ = record.load_case(spec)
            except errors.TesterError as error:
                in_one_line(error)
                assert error.status == 2  # noqa: PT017
            else:
                assert isinstance(case, Case)
        assert list(Path(folder.name).iterdir()) == [path]


@fuzzed(
    st.text(max_size=50) | JSON.map(json.dumps) | broken(jsonl.dumps(RUN, ["cases"]).encode()).map(lambda b: b.decode("latin-1"))
)
def test_a_text_is_json_or_is_refused(text):
    for reader in (json_text.parse, jsonl.loads):
        try:
            found = reader(text)
        except ValueError as error:
            in_one_line(error)
        else:
            json.dumps(found, allow_nan=False)


@fuzzed(changed(RUN), few=80)
def test_a_baseline_is_read_and_held_against_a_run_or_refused(document):
    folder, path = written(json.dumps(document).encode())
    with folder:
        try:
            baseline = Baseline.read(path)
        except errors.TesterError as error:
            in_one_line(error)
            return
        change = baseline.against(RUN)
        json.dumps(change.to_json(), allow_nan=False)
        assert change.lines()


def archive(save_arrays):
    memory = io.BytesIO()
    save_arrays(memory, input=np.ones((2, 3), np.float32), weight=np.ones(3, np.float32))
    return memory.getvalue()


@fuzzed(
    st.tuples(st.just(".npz"), broken(archive(np.savez)) | broken(archive(np.savez_compressed)) | st.binary(max_size=60))
    | st.tuples(
        st.just(".safetensors"), broken(save({"input": torch.ones(2, 3), "weight": torch.ones(3)})) | st.binary(max_size=60)
    ),
    few=60,
)
def test_a_file_of_tensors_is_read_or_refused(named):
    suffix, content = named
    folder, path = written(content, f"x{suffix}")
    with folder:
        try:
            tensors = file.load(path, file.digest(path))
            inputs = file.inputs_of("rmsnorm", tensors)
        except ValueError as error:
            in_one_line(error)
        else:
            assert inputs["weight"].shape == inputs["input"].shape[-1:]


@fuzzed(
    st.dictionaries(st.sampled_from(["input", "weight", "x"]), st.text("0123456789abcdef* x", max_size=12), max_size=3), few=60
)
def test_values_written_out_are_read_or_refused(words):
    case = Case("rmsnorm", "bf16", (1,), 2, "normal", 0, contract("rmsnorm"), given=Values(tuple(words.items())))
    try:
        found = case.inputs()
    except ValueError as error:
        in_one_line(error)
    else:
        assert found["input"].shape == (1, 2)


# --- journals -------------------------------------------------------------------------------------------------------------


def lines_of(journal, keep):
    """The lines of a journal in which something was kept."""
    with tempfile.TemporaryDirectory() as folder:
        made = journal(Path(folder) / "x.jsonl")
        keep(made)
        made.close()
        return (Path(folder) / "x.jsonl").read_bytes().splitlines(keepends=True)


TORCH = providers.get("torch")
ABOUT = {"candidate": "torch", "against": ["torch"], "batch_invariant": False, "saved": [CASE.to_json()]}
FOUND = [*check(CASE, TORCH, [TORCH], again=True), Skip(CASE, "flashinfer", "not installed")]
OF_CASES = lines_of(lambda path: journals.Journal(path, ABOUT), lambda journal: journal.keep(CASE, True, FOUND))
SEEDS = mutants_journal.about([0], cli.DEFAULTS)
OF_MUTANTS = lines_of(
    lambda path: mutants_journal.Journal(path, SEEDS), lambda journal: journal.keep(0, Found("field", "returns_zeros", 3, 9))
)


@st.composite
def journal_like(draw, lines):
    """A journal with a line that says something else, or is broken, or all of it is."""
    head, line = lines
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(broken(b"".join(lines)))
    if kind == 1:
        head = json.dumps(draw(changed(json.loads(head)))).encode() + b"\n"
    elif kind == 2:
        line = json.dumps(draw(changed(json.loads(line)))).encode() + b"\n"
    else:
        line = draw(broken(line))
    return head + line + draw(st.sampled_from([b"", line, b"\n", b"{", b"{}\n"]))


def gone_on_with(kind, about, content, use):
    """Opens a journal to go on with it, uses what it holds, adds a line: or it is refused in a line, and left as it was."""
    folder, path = written(content)
    with folder:
        try:
            journal = kind(path, about, resume=True)
            use(journal)
        except errors.TesterError as error:
            in_one_line(error)
            assert error.status == 2  # noqa: PT017
            assert content.startswith(path.read_bytes())
            return
        journal.append({"x": 1})
        journal.close()
        whole = content[: content.rfind(b"\n") + 1]
        assert path.read_bytes().startswith(whole)
        assert path.read_bytes().endswith(b'{"x": 1}\n')
        assert list(Path(folder.name).iterdir()) == [path]


@fuzzed(journal_like(OF_CASES), few=80)
def test_a_journal_is_gone_on_with_or_refused(content):
    def use(journal):
        found = journal.found(CASE, True) or []
        outcome = Outcome(
            [each for each in found if not isinstance(each, Skip)], [each for each in found if isinstance(each, Skip)]
        )
        json.dumps(record.document(outcome, {}, {}), allow_nan=False)

    gone_on_with(journals.Journal, ABOUT, content, use)
    folder, path = written(content)
    with folder:
        try:
            assert all(isinstance(case, Case) for case in journals.saved_in(path))
        except errors.TesterError as error:
            in_one_line(error)


@fuzzed(journal_like(OF_MUTANTS), few=60)
def test_a_journal_of_mutants_is_gone_on_with_or_refused(content):
    def use(journal):
        for found in journal.done.values():
            assert isinstance(found, Found)
            assert found.killed in (True, False)

    gone_on_with(mutants_journal.Journal, SEEDS, content, use)

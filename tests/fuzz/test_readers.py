"""Readers of cases, runs, JSON and tensors, given what is none: they read it, or refuse it with their own error in one line."""

import io
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import strategies as st
from safetensors.torch import save

from difftest import errors, json_text
from difftest.cases import Case, file
from difftest.cases.given import Values
from difftest.report import jsonl, record
from difftest.report.baseline import Baseline
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

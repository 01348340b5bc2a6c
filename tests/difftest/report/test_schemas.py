"""The published schemas: what a run, a saved case and the other commands leave is what they say, and they say every key of it."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

import difftest.report
from difftest import cli
from difftest.cases.case import SCHEMA as CASE
from difftest.identify.report import SCHEMA as IDENTIFY
from difftest.identify.report import SCHEMA_OF_ORDERS as ORDERS
from difftest.matrix.analyse import SCHEMA as MATRIX
from difftest.mutants.file import SCHEMA as MUTANTS
from difftest.report import jsonl
from difftest.report.record import SCHEMA as RUN

FOLDER = Path(difftest.report.__file__).parent / "schemas"
FILES = {path.name: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
REGISTRY = Registry().with_resources([(name, Resource.from_contents(content)) for name, content in FILES.items()])


def file_of(schema):
    """`numba-kernels/difftest/2` -> `difftest-2.schema.json`."""
    _, name, version = schema.split("/")
    return f"{name}-{version}.schema.json"


def errors(document):
    """What the schema that the document names says is wrong with it."""
    validator = Draft202012Validator(FILES[file_of(document["schema"])], registry=REGISTRY)
    return [f"{each.json_path}: {each.message}" for each in validator.iter_errors(document)]


def described(schema, name=""):
    """The keys that a schema describes at its top, those of what it is made of included."""
    own = set(schema.get("properties", {}))
    for part in schema.get("allOf", ()):
        own |= described(part, name)
    if "$ref" in schema:
        file, _, pointer = schema["$ref"].partition("#/$defs/")
        own |= described(FILES[file or name]["$defs"][pointer], file or name)
    return own


@pytest.fixture
def a_run(difftest, broken):
    """A run in which a candidate differs, with its saved case."""
    words = ("--dtypes", "bf16", "--widths", "3,64", "--regimes", "normal,inf_nan", "--cases", "2")
    return difftest("--candidate", broken("drops_one_element", "rmsnorm"), *words).json


@pytest.mark.parametrize("name", FILES)
def test_each_is_a_schema(name):
    Draft202012Validator.check_schema(FILES[name])


@pytest.mark.parametrize("schema", [RUN, CASE, IDENTIFY, ORDERS, MATRIX, MUTANTS, "numba-kernels/ledger/1"])
def test_there_is_one_for_the_version_that_is_written(schema):
    assert file_of(schema) in FILES


def test_a_run_and_its_saved_case_are_what_their_schemas_say(a_run, tmp_path):
    assert a_run["verdict"] == "differs"
    assert errors(a_run) == []
    (saved,) = (tmp_path / "failures").glob("*.json")
    assert errors(json.loads(saved.read_text())) == []


def test_every_key_of_a_run_and_of_its_cases_is_described(a_run):
    schema = FILES[file_of(RUN)]
    assert set(a_run) <= described(schema, file_of(RUN))
    known = described(schema["properties"]["cases"]["items"], file_of(RUN))
    assert {key for case in a_run["cases"] for key in case} <= known


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dtype", "fp8"),
        ("width", 0),
        ("lead", [-1]),
        ("out", "yes"),
        ("verdict", "ok"),
        ("outputs", {"output": {}}),
        ("given", {}),
    ],
)
def test_a_case_that_is_none_is_refused(a_run, key, value):
    wrong = {"schema": CASE, **a_run["cases"][0], key: value}
    assert errors(wrong)


def test_a_matrix_identify_and_ledger_are_what_their_schemas_say(run, tmp_path):
    small = ("--dtypes", "bf16", "--widths", "64", "--device", "cpu")
    _, _, matrix = run("difftest", "--candidate", "torch,torch-rmsnorm", "--ops", "rmsnorm", *small)
    _, _, identified = run("identify", "--op", "rmsnorm", "--candidate", "torch", "--widths", "3,64", "--device", "cpu")
    _, _, moved = run("ledger", "--op", "rmsnorm")
    _, _, orders = run(
        "identify", "--op", "rmsnorm", "--candidate", "torch", "--widths", "1,40", "--device", "cpu", "--order", "only"
    )
    documents = ((matrix, MATRIX), (identified, IDENTIFY), (moved, "numba-kernels/ledger/1"), (orders, ORDERS))
    for document, what in documents:
        assert document["schema"] == what
        assert errors(document) == []


def test_a_result_of_mutants_is_what_its_schema_says(run, monkeypatch):
    few = {**cli.DEFAULTS, "--widths": "3", "--dtypes": "bf16", "--cases": 0, "--strength": 0}
    monkeypatch.setattr(cli, "DEFAULTS", few)
    _, _, document = run("mutants", "--only", "returns_zeros,rmsnorm_in_plain_torch", "--workers", 0)
    assert document["schema"] == MUTANTS
    assert errors(document) == []
    schema = FILES[file_of(MUTANTS)]
    assert set(document) == set(schema["properties"])
    assert {key for entry in document["entries"] for key in entry} == set(schema["properties"]["entries"]["items"]["properties"])


def test_json_lines_hold_the_document_of_the_schema(run, tmp_path):
    words = ("--ops", "rmsnorm", "--dtypes", "bf16", "--widths", "64", "--device", "cpu", "--seed", "3")
    file = tmp_path / "matrix.jsonl"
    _, _, document = run("difftest", "--candidate", "torch,torch-rmsnorm", *words)
    jsonl.write(file, document, ["groups"])
    assert errors(jsonl.loads(file.read_text())) == []


def test_the_page_on_the_tester_links_each():
    page = (Path(difftest.report.__file__).parents[2] / "docs" / "tester.md").read_text()
    assert [name for name in FILES if f"difftest/report/schemas/{name}" not in page] == []

"""`--baseline`: a run beside an earlier one, of which no figure may be worse."""

import copy
import json

import pytest

SMALL = ("--ops", "rmsnorm", "--dtypes", "bf16", "--widths", "3,64", "--regimes", "normal", "--cases", "0", "--rows", "4")


@pytest.fixture
def against(difftest, tmp_path):
    """A small run of torch against a baseline: that run's own document, changed by a function."""
    document = difftest("--candidate", "torch", *SMALL).json

    def run(change=lambda document: None, *words):
        old = copy.deepcopy(document)
        change(old)
        file = tmp_path / "old.json"
        file.write_text(json.dumps(old))
        return difftest("--candidate", "torch", *SMALL, *words, "--baseline", file)

    return run


def test_a_run_that_is_as_it_was_conforms(against):
    ran = against()
    assert ran.status == 0
    assert ran.json["baseline"]["compared"] == 2
    assert (ran.json["baseline"]["worse"], ran.json["baseline"]["better"], ran.json["baseline"]["new"]) == ([], 0, 0)


@pytest.mark.parametrize("figure", ["mismatches", "max_ulp", "classes", "differing_rate", "rstd_error_max"])
def test_a_figure_that_is_worse_is_a_difference_that_is_named(against, figure):
    def better_before(old):
        case = old["cases"][1]
        if figure in ("mismatches", "max_ulp"):
            case["outputs"]["output"][figure] -= 1
        elif figure == "classes":
            case["outputs"]["output"]["classes"] = {"NaN for a number": -1}
        else:
            case["statistics"][figure] -= 1e-9

    ran = against(better_before)
    assert ran.status == 1
    (worse,) = ran.json["baseline"]["worse"]
    assert worse["index"] == 1
    assert f"worse than {ran.json['baseline']['file']}: rmsnorm bf16 4x64, normal" in ran.out.replace("\n", " ")


def test_a_figure_that_was_worse_before_is_counted_as_better(against):
    ran = against(lambda old: old["cases"][0]["outputs"]["output"].update(max_ulp=7))
    assert ran.status == 0
    assert ran.json["baseline"]["better"] == 1


def test_a_case_that_differs_now_and_did_not_is_worse(difftest, broken, tmp_path):
    words = [word for word in SMALL if word not in ("--ops", "rmsnorm")]
    fixed = difftest("--candidate", broken("plain", "rmsnorm"), *words)
    assert fixed.status == 0
    file = tmp_path / "old.json"
    file.write_text(json.dumps(fixed.json))
    ran = difftest("--candidate", broken("drops_one_element", "rmsnorm"), *words, "--baseline", file)
    assert ran.status == 1
    assert "differs" in {each["figure"] for each in ran.json["baseline"]["worse"]}


def test_what_is_new_and_what_is_missing_is_said_and_no_difference(against):
    ran = against(lambda old: old["cases"][0].update(seed=1))
    assert ran.status == 0
    assert (ran.json["baseline"]["new"], len(ran.json["baseline"]["missing"])) == (1, 1)
    assert "1 case new, 1 missing" in ran.out


def test_a_run_of_the_first_schema_is_read(against):
    def older(old):
        old["schema"] = "numba-kernels/difftest/1"
        for case in old["cases"]:
            del case["weights"]
            case |= {"padding": 0, "out_given": case.pop("out") == "given"}

    assert against(older).json["baseline"]["compared"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda old: old.update(schema="numba-kernels/matrix/2"), "is not a run's JSON"),
        (lambda old: [case.update(seed=9) for case in old["cases"]], "has none of this run's cases"),
        (lambda old: old["cases"][0].pop("op"), "has a case that is none"),
    ],
)
def test_what_is_no_baseline_of_this_run_is_one_line(against, change, said):
    ran = against(change)
    assert ran.status == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_matrix_has_no_baseline(difftest, tmp_path):
    (tmp_path / "old.json").write_text("{}")
    ran = difftest("--candidate", "torch,torch-rmsnorm", "--baseline", tmp_path / "old.json")
    assert (ran.status, ran.err) == (2, "error: --baseline: a matrix has none; give one --candidate\n")

"""Every wrong kernel of the field is found by the default run, or by the options that it names; no honest one is called wrong."""

import pytest
import torch

from difftest import cli
from difftest.cases import regimes
from difftest.mutants import run
from difftest.mutants.cases import default_cases, further_cases
from difftest.mutants.corpora import CORPORA
from difftest.mutants.run import Asked
from difftest.run import pool

FIELD, HONEST = CORPORA["field"].entries(), CORPORA["honest"].entries()


def ran(corpus, names, seeds=(0,)):
    """What was found of the entries of that name, in the default run of the command line."""
    asked = Asked([(corpus, name) for name in names], seeds, cli.DEFAULTS, workers=pool.cores())
    return run.run(asked).found


def test_the_corpora_are_as_large_as_the_page_says():
    assert len(FIELD) >= 60
    assert len(HONEST) >= 40


def test_every_kind_and_every_operator_has_wrong_and_honest_kernels():
    from reference.operators import OPERATORS

    for entries in (FIELD, HONEST):
        assert {op for entry in entries for op in entry.ops} == set(OPERATORS)


def test_every_wrong_kernel_says_where_it_was_seen():
    assert [entry.name for entry in FIELD if not entry.source] == []


@pytest.mark.parametrize("entry", [entry for entry in FIELD if entry.beyond], ids=lambda entry: entry.name)
def test_an_option_beyond_the_defaults_is_one_of_difftests(entry):
    options = {name for each in cli.difftest.params for name in each.opts}
    assert set(entry.beyond) <= options
    assert len(further_cases(entry, cli.DEFAULTS, 0)) > 0


def test_what_needs_no_option_has_no_further_cases():
    assert further_cases(FIELD[0], cli.DEFAULTS, 0) == []


def test_an_entry_runs_what_difftest_runs_of_its_operator():
    entry = next(entry for entry in HONEST if entry.name == "hugging_faces_norm")
    cases = default_cases(entry, {**cli.DEFAULTS, "--strength": 0}, 0)
    assert {case.contract.code for case in cases} == {"W1"}
    assert {case.regime for case in cases} >= set(regimes.names(cases[0].operator))
    assert {case.width for case in cases} >= {1, 3, 111, 4096}


# One in so many; all of them, as `python cli.py mutants` runs them, take a quarter of an hour on two cores.
ONE_IN = 13


def test_torchs_gelu_on_a_cpu_is_wrong_at_both_ends_of_fp32():
    """Why two kernels that use it are among the wrong ones; a torch in which this fails has mended it."""
    found = torch.nn.functional.gelu(torch.tensor([torch.inf, *[2.4e38] * 7]))
    assert found[0].isnan()
    assert found[1].isinf()


@pytest.mark.slow
def test_wrong_kernels_of_the_field_are_found():
    asked = FIELD[::ONE_IN]
    found = ran("field", [entry.name for entry in asked])
    assert [each.name for each in found] == [entry.name for entry in asked]
    assert [each.name for each in found if not each.killed] == []
    assert [each.name for each in found if "unnamed" in each.caught] == []


@pytest.mark.slow
def test_no_honest_kernel_is_called_wrong():
    asked = HONEST[::ONE_IN]
    found = ran("honest", [entry.name for entry in asked])
    assert [each.name for each in found] == [entry.name for entry in asked]
    assert [(each.name, each.first) for each in found if each.caught] == []

"""The bytes that each form of an operator moves."""

import json

import pytest

from difftest.cases.ledger import ledger, moved
from difftest.cli import main
from reference.operators import OPERATORS

N = 128 * 4096
S = 2


def test_the_worked_example_of_the_fused_norm():
    """128 rows of 4096 in 2 bytes: 5 MiB fused, 9 MiB with the fp32 sum kept in memory, 6 MiB with the sum rounded."""
    found = ledger("fused_add_rmsnorm", 128, 4096, S)
    assert found.fused.total == 5 * N * S == 5 * 2**20
    assert found.forms[1].total == 5 * N * S + 8 * N == 9 * 2**20
    assert found.forms[2].total == 6 * N * S == 6 * 2**20
    assert found.forms[1].total - found.fused.total == 4 * 2**20


def test_keeping_the_contract_costs_the_fp32_intermediate_twice():
    for op in OPERATORS:
        for itemsize in (2, 4):
            found = ledger(op, 7, 111, itemsize)
            assert found.forms[1].total - found.fused.total == 8 * 7 * 111
            assert found.forms[1].contract == found.fused.contract


def test_the_cheaper_split_has_another_contract_at_16_bits_and_the_same_at_32():
    assert ledger("fused_add_rmsnorm", 8, 64, 2).forms[2].contract == "R1W0"
    assert ledger("rmsnorm", 8, 64, 2).forms[2].contract == "W1"
    assert ledger("silu_and_mul", 8, 64, 2).forms[2].contract == "S1"
    for op in OPERATORS:
        found = ledger(op, 8, 64, 4)
        assert found.forms[2].contract == found.fused.contract


@pytest.mark.parametrize(
    ("op", "fused", "stored"), [("rmsnorm", 3, 5), ("gemma_rmsnorm", 3, 5), ("silu_and_mul", 3, 5), ("gelu_and_mul", 3, 5)]
)
def test_the_ledgers_of_norms_and_gates_in_elements(op, fused, stored):
    found = ledger(op, 128, 4096, S)
    assert (found.fused.total, found.forms[2].total) == (fused * N * S, stored * N * S)
    assert [form.kernels for form in found.forms] == [1, 2, 2]


def test_the_weight_counts_once_a_launch_for_bandwidth():
    assert moved("fused_add_rmsnorm", 128, 4096, S) == 4 * N * S + 4096 * S
    assert moved("rmsnorm", 128, 4096, S) == 2 * N * S + 4096 * S
    assert moved("silu_and_mul", 128, 4096, S) == 3 * N * S


def test_an_fp32_weight_counts_in_its_own_bytes():
    assert ledger("rmsnorm", 128, 4096, 2, weight_itemsize=4).fused.total == 2 * N * 2 + N * 4


def test_the_command_writes_both_accounts(tmp_path, capsys):
    file = tmp_path / "ledger.json"
    with pytest.raises(SystemExit) as end:
        main(["ledger", "--op", "fused_add_rmsnorm", "--json", str(file)])
    assert end.value.code == 0
    assert "5,242,880" in capsys.readouterr().out
    [found] = json.loads(file.read_text())["operators"]
    assert [form["total"] for form in found["weight_per_row"]] == [5 * 2**20, 9 * 2**20, 6 * 2**20]
    assert found["weight_per_launch"][0]["total"] == moved("fused_add_rmsnorm", 128, 4096, 2)


@pytest.mark.parametrize("words", [["--op", "relu"], ["--dtype", "int8"], ["--rows", "0"], ["--width", "0"], ["--rows", "x"]])
def test_bad_usage_is_one_line_and_status_2(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["ledger", *words])
    assert end.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1

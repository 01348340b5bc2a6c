"""The script that compares the emulator's bits with a GPU's, with the emulator on both sides."""

import json
from itertools import islice

import pytest
import torch
from click.testing import CliRunner

from benchmarks import bits_on_gpu as script
from reference.operators import OPERATORS

GROUP = script.Group("rmsnorm", "bf16", "W1")


def test_every_operator_dtype_and_contract_is_drawn_in_every_round_and_every_edge_soon():
    everything = len(script.groups())
    rounds = list(islice(script.jobs(0), 3 * len(script.EDGES) * everything))
    assert everything == sum(3 * len(op.codes) for op in OPERATORS.values())
    assert {group for group, _, _ in rounds[:everything]} == set(script.groups())
    assert {width for group, width, _ in rounds if group == GROUP} >= set(script.EDGES)
    assert all(1 <= width <= script.WIDEST for _, width, _ in rounds)


@pytest.mark.slow
def test_the_emulator_has_its_own_bits_again_in_every_regime():
    found = script.compare(GROUP, 40, 7, "cpu")
    assert found.differing == 0
    assert found.calls == len(list(script.cases(GROUP, 40, 7)))
    assert found.elements > 40 * found.calls


def test_one_other_bit_is_counted_by_its_regime_and_shown(monkeypatch):
    real = script.outputs

    def planted(case, inputs, device):
        words = real(case, inputs, "cpu")
        if device == "gpu" and case.regime == "inf_nan":
            words["output"][0, 1] ^= 1
        return words

    monkeypatch.setattr(script, "outputs", planted)
    monkeypatch.setattr(script, "ROWS", 8)  # the emulator's time
    found = script.compare(GROUP, 40, 7, "gpu")
    assert (found.differing, dict(found.regimes)) == (1, {"inf_nan": 1})
    assert "rmsnorm bf16 4x40, inf_nan" in found.first
    assert "output[1]" in found.first


@pytest.mark.slow  # a process for the workers
@pytest.mark.skipif(torch.cuda.is_available(), reason="says what it does without a GPU")
def test_the_command_says_what_it_compared_and_that_it_was_too_little(tmp_path):
    done = CliRunner().invoke(script.main, [str(tmp_path / "bits.jsonl"), "--seconds", "1", "--workers", "1"])
    assert done.exit_code == 2, done.output
    lines = [json.loads(line) for line in (tmp_path / "bits.jsonl").read_text().splitlines()]
    assert len(lines) == 1 + len(script.groups())
    assert lines[0]["elements"] == sum(line["elements"] for line in lines[1:])

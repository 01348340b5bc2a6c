"""The script that runs mutants on a GPU, with the emulator in the GPU's place."""

from functools import partial

import pytest
import torch

from benchmarks import mutants_on_gpu as script
from difftest.mutants.machine.listing import mutants
from difftest.mutants.machine.proofs import only_on_a_gpu


@pytest.fixture
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(script, "drawn", lambda *shape: torch.randn(*shape).bfloat16())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(script, "SHAPES", ((2, 8),))
    monkeypatch.setattr(script, "CALLS", 2)


@pytest.mark.slow  # compiles three kernels
def test_each_chain_leaves_its_bits_and_the_same_ones_again(on_the_cpu):
    work = partial(script.digests, script.NORMS + script.GATED, script.nothing)
    (found, ended), (again, _) = (script.in_a_process("", work) for _ in range(2))
    assert ended == 0
    assert set(found) == {"added 2x8", "alone 2x8", "gated 2x8"}
    assert found == again
    assert len(set(found.values())) == 3


def test_other_bits_and_a_process_that_dies_are_findings(monkeypatch):
    name = next(mutant.name for mutant in mutants() if only_on_a_gpu(mutant))
    answers = iter([({"added": "a", "alone": "b"}, 0), ({"added": "a", "alone": "other"}, 0), ({"added": "a"}, -9), (None, 1)])
    monkeypatch.setattr(script, "in_a_process", lambda name, work: next(answers))
    right = {"added": "a", "alone": "b", "gated": "c"}
    said = [script.try_on_gpu(name, right).found for _ in range(4)]
    assert said == ["", "alone", "the process ended with -9 after 1 chains", "the process ended with 1 after 0 chains"]

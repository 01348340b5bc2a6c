"""Which mutants there are, and what is said of them by hand."""

from collections import Counter

from difftest.mutants.corpora import CORPORA
from difftest.mutants.machine.forms import BY_FILE
from difftest.mutants.machine.listing import SOURCES, by_name, mutants, taken
from difftest.mutants.machine.proofs import only_on_a_gpu, proofs

KINDS = {
    *("arithmetic", "argument", "bound", "branch", "condition", "constant", "dtype", "mask", "name", "operand", "order"),
    *("rounding", "shuffle", "statement"),
}


def test_there_are_a_thousand_and_more_of_every_kind_and_file():
    found = mutants()
    assert len(found) > 1000
    assert {mutant.edit.kind for mutant in found} == KINDS
    assert {mutant.source for mutant in found} == set(SOURCES)


def test_each_has_a_name_of_its_own_that_finds_it():
    names = Counter(mutant.name for mutant in mutants())
    assert max(names.values()) == 1
    assert by_name(mutants()[7].name) == mutants()[7]


def test_the_list_is_the_same_each_time_and_in_the_order_of_the_lines():
    source = SOURCES[0]
    again = taken(source)
    assert again == [mutant for mutant in mutants() if mutant.source == source]
    assert [mutant.edit.line for mutant in again] == sorted(mutant.edit.line for mutant in again)


def test_a_name_does_not_depend_on_the_lines_before_it(monkeypatch):
    source = SOURCES[0]
    names = [mutant.name for mutant in taken(source)]
    text = source.text()
    monkeypatch.setattr(type(source), "text", lambda self: "# one more line\n" + text)
    assert [mutant.name for mutant in taken(source)] == names


def test_every_file_of_kernels_has_forms_to_be_tried_in():
    assert set(BY_FILE) == {source.stem for source in SOURCES if source.is_kernel}
    for forms in BY_FILE.values():
        assert len({form.name for form in forms}) == len(forms)


def test_every_proof_is_of_mutants_that_there_are_and_of_each_once():
    named = Counter(name for proof in proofs() for name in proof.mutants)
    assert set(named) <= {mutant.name for mutant in mutants()}
    assert max(named.values(), default=1) == 1
    assert all(len(proof.reason) > 20 for proof in proofs())


def test_what_only_a_gpu_shows_is_dependent_launch_and_prefetch():
    found = [mutant for mutant in mutants() if only_on_a_gpu(mutant)]
    assert 20 < len(found) < 150
    assert {mutant.source.stem for mutant in found} <= {"row", "norms", "streamed", "gated"}


def test_they_are_a_corpus_of_the_command():
    entries = {entry.name: entry for entry in CORPORA["machine"].entries()}
    assert set(entries) == {mutant.name for mutant in mutants()}
    mutant = mutants()[0]
    assert entries[mutant.name].what == mutant.what
    assert f"{mutant.edit.before}  ->  {mutant.edit.after}" in mutant.what

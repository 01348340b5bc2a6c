"""A mutant tried: killed, the same code, no code at all, a loop without end; and a sample of those that there are."""

import ast
import itertools
import signal

import pytest
from numba.core.bytecode import FunctionIdentity

from difftest.mutants.machine import child, emulated
from difftest.mutants.machine import trial as trial_module
from difftest.mutants.machine.edits import Edit
from difftest.mutants.machine.listing import SOURCES, Mutant, mutants
from difftest.mutants.machine.proofs import only_on_a_gpu, proof_of
from difftest.mutants.machine.trial import KILLED, REFUSED, SAME, SURVIVED, UNREACHED, original_code, refused, try_out, warm_up
from numba_kernels.runtime import host, launch

TEXTBOOK = SOURCES[0]


def planted(before, after):
    """The textbook kernels with one text in another's place."""
    text = TEXTBOOK.text().encode()
    assert text.count(before.encode()) == 1
    start = text.index(before.encode())
    ast.parse(TEXTBOOK.text().replace(before, after))
    return Mutant("planted", TEXTBOOK, Edit("planted", "", 1, before, after, start, start + len(before.encode()), after))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("if thread % 32 == 0", "if thread % -32 == 0", SAME),
        ("row_values[i] = h", "row_values[i] = -h", KILLED),
        ("row_values[i] = h", "row_values[i] = nowhere", REFUSED),
        ("FULL_WARP = 0xFFFFFFFF", "FULL_WARP = 0x0000FFFF", KILLED),
        ("x_row, residual_row, out_row = row * x_stride", "x_row, residual_row, out_row = row * x_stride & 0xFFFFFFFF", KILLED),
        ("# for the same thread, below", "# another comment, as long  ", UNREACHED),
    ],
)
def test_a_planted_change_comes_to_what_it_is(before, after, status):
    trial = try_out(planted(before, after))
    assert trial.status == status, trial


@pytest.mark.slow
def test_how_many_functions_a_process_has_compiled_decides_nothing(monkeypatch):
    """A mutant's process numbers more of them than that of the original, so Numba's numbers may differ in length."""
    warm_up()
    monkeypatch.setattr(FunctionIdentity, "_unique_ids", itertools.count(997))
    monkeypatch.setattr(trial_module, "original_code", original_code.__wrapped__)
    assert try_out(planted("if thread % 32 == 0", "if thread % -32 == 0")).status == SAME


def test_calls_are_emulated_where_there_is_a_gpu_too_and_afterwards_are_not(monkeypatch):
    monkeypatch.delenv("NUMBA_KERNELS_DEVICE", raising=False)
    monkeypatch.setattr(launch, "device_count", lambda: 1)
    with emulated.emulated(None):
        assert host.emulates()
    assert not host.emulates()


@pytest.mark.slow
def test_what_the_emulator_finds_goes_by_its_name():
    trial = try_out(planted("row_values[i] = h", "row_values[i - 1000] = h"))
    assert trial.deciding.checks == ("emulator",)
    assert "OutOfBounds" in trial.deciding.first


@pytest.mark.slow
def test_a_loop_without_end_is_ended_and_counts_as_killed():
    trial = try_out(planted("for warp in range(WARPS):", "warp = 0\n        while total == total:"))
    assert (trial.status, trial.deciding.checks) == (KILLED, ("no end",))


@pytest.mark.slow
def test_most_of_a_sample_is_killed():
    """Of each file one and more. Those that survive are questions that no case puts, or wait for a proof."""
    sample = [mutant for mutant in mutants()[:: len(mutants()) // 6] if not proof_of(mutant) and not only_on_a_gpu(mutant)]
    survivors = [mutant.name for mutant in sample if try_out(mutant).status == SURVIVED]
    assert len(sample) > 4
    assert len(survivors) <= len(sample) // 3, survivors


def test_a_mutant_of_a_formula_is_killed():
    mutant = next(m for m in mutants() if m.edit.function == "rmsnorm" and "A.mul(normalised" in m.edit.before)
    assert try_out(mutant).status in (KILLED, REFUSED)


def test_a_stored_sum_that_loses_bits_is_killed_in_the_dtype_where_it_has_them():
    mutant = next(m for m in mutants() if m.edit.after == "stored = half_away(A.store(total))")
    trial = try_out(mutant)
    assert (trial.status, trial.deciding.form) == (KILLED, "fused_add_rmsnorm fp32 R0W0")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "after", "form"),
    [
        ("act_and_mul", "activated = half_away(A.load(A.store(activated)))", "silu_and_mul fp16 S1"),
        (
            "EveryOperation.mul",
            "return through_bf16(self.inner.mul(self._stored(a), self._stored(b)))",
            "swigluoai_and_mul fp16 S2",
        ),
        (
            "EveryOperation.clamp",
            "return through_fp16(self.inner.clamp(self._stored(a), lowest, highest))",
            "swigluoai_and_mul bf16 S2",
        ),
        ("Fp32.store", "return value.to(self.dtypes[self.rows])", "gemma_rmsnorm bf16 W0"),
    ],
)
def test_a_rounding_to_another_format_is_killed_where_it_is_another(function, after, form):
    mutant = next(m for m in mutants() if (m.edit.function, m.edit.after) == (function, after))
    trial = try_out(mutant)
    assert (trial.status, trial.deciding.form) == (KILLED, form)


@pytest.mark.slow
def test_the_formulas_themselves_are_not_accused():
    for source in SOURCES:
        if not source.is_kernel:
            same = Mutant("unchanged", source, Edit("planted", "", 1, "", "", 0, 0, ""))
            assert try_out(same).status == SURVIVED


def test_the_last_answer_of_a_child_counts_and_how_it_ended():
    def counts(say):
        for number in range(3):
            say(number)

    def dies(say):
        say("before")
        signal.raise_signal(signal.SIGKILL)

    assert child.last_answer(counts) == (2, 0)
    assert child.last_answer(dies) == ("before", -signal.SIGKILL)
    assert child.last_answer(lambda say: None) == (None, 0)


@pytest.mark.parametrize(
    ("reason", "of_a_compiler"),
    [
        ("raised CompileError: norm_kernel, textbook.py:33: no", True),
        ("row 0 alone: raised NameError: name 'h' is not defined", True),
        ("raised OutOfBounds: norm_kernel: index", False),
        ("row 0 alone: raised DataRace: norm_kernel", False),
        ("residual: 3 of 8 are not the rounded sum; row 0", False),
    ],
)
def test_what_a_compiler_says_kills_nothing(reason, of_a_compiler):
    assert refused(reason) is of_a_compiler


IR = """define i32 @f(i32 %arg.1) {{
entry:
  %{0} = add i32 %arg.1, {1} ; a comment
  br label %{2}
{2}:
  %x = call i32 @{3}(i32 %{0}), !tbaa !7
  ret i32 %x
}}
"""


def test_code_is_the_same_where_nothing_but_names_differ():
    code = emulated.normalised(IR.format(".3", 1, "B4", "expf"))
    assert emulated.normalised(IR.format(".9", 1, "B7", "expf")) == code
    assert emulated.normalised(IR.format(".3", 2, "B4", "expf")) != code
    assert emulated.normalised(IR.format(".3", 1, "B4", "erff")) != code

"""The changes that are made: of a made-up function, kind by kind."""

import ast
from collections import Counter

import pytest

from difftest.mutants.machine.edits import applied, edits

SOURCE = '''"""A file, with ü in it."""

FULL = 0xFFFFFFFF


def make(operation):
    """Not changed: a docstring."""
    rounded, THREADS = make_rounded(operation), operation.threads

    @cuda.jit(device=True, inline="always")
    def total(x, out, x_row, out_row, width):
        sums = 0.5
        for i in range(THREADS, width):  # a comment, with ü in it
            sums += rounded(read(x, x_row + i))
        sums = fma(
            sums,
            sums,
            sums,
        )
        cuda.syncthreads()
        sums += cuda.shfl_xor_sync(FULL, sums, 16)
        if width < 3 and not width == 2:
            write(out, out_row + i, sums if width > 1 else -sums)
        return float32(sums)

    return total
'''


@pytest.fixture(scope="module")
def found():
    return edits(SOURCE)


def afters(found, kind):
    return {edit.after for edit in found if edit.kind == kind}


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("arithmetic", "sums += rounded(read(x, x_row - i))"),
        ("arithmetic", "sums -= rounded(read(x, x_row + i))"),
        ("arithmetic", "sums = rounded(read(x, x_row + i))"),
        ("arithmetic", "write(out, out_row + i, sums if width > 1 else sums)"),
        ("operand", "sums += rounded(read(x, x_row))"),
        ("constant", "sums = 1.0"),
        ("constant", "sums = -0.5"),
        ("constant", "sums = 0.50048828125"),
        ("constant", "FULL = 4294967296"),
        ("bound", "for … in range(THREADS, width + 1):"),
        ("bound", "if width <= 3 and (not width == 2):"),
        ("condition", "if width < 3:"),
        ("condition", "if width < 3 or not width == 2:"),
        ("condition", "if not (width < 3 and (not width == 2)):"),
        ("condition", "if True:"),
        ("branch", "write(out, out_row + i, -sums if width > 1 else sums)"),
        ("statement", "pass"),
        ("order", "sums += cuda.shfl_xor_sync(FULL, sums, 16); cuda.syncthreads()"),
        ("shuffle", "sums += cuda.shfl_down_sync(FULL, sums, 16)"),
        ("shuffle", "sums += sums"),
        ("mask", "sums += cuda.shfl_xor_sync(65535, sums, 16)"),
        ("argument", "write(out, sums if width > 1 else -sums, out_row + i)"),
        ("name", "sums += rounded(read(x, out_row + i))"),
        ("dtype", "return float64(sums)"),
        ("rounding", "sums += read(x, x_row + i)"),
        ("rounding", "sums = through_fp16(fma(sums, sums, sums))"),
        ("rounding", "return toward_zero(float32(sums))"),
    ],
)
def test_a_change_of_each_kind_is_made(found, kind, after):
    assert after in afters(found, kind)


def test_what_is_made_is_a_file_that_parses_and_another_one(found):
    texts = [applied(SOURCE, edit) for edit in found]
    for text in texts:
        ast.parse(text)
    assert SOURCE not in texts
    assert max(Counter(texts).values()) == 1


def test_docstrings_decorators_and_comments_stay(found):
    for edit in found:
        text = applied(SOURCE, edit)
        assert '"""Not changed: a docstring."""' in text
        assert '@cuda.jit(device=True, inline="always")' in text
        assert "# a comment, with ü in it" in text


def test_lines_after_a_change_keep_their_number(found):
    for edit in found:
        if edit.kind != "order":
            assert applied(SOURCE, edit).splitlines()[-1] == "    return total"
            assert applied(SOURCE, edit).count("\n") == SOURCE.count("\n")


def test_an_edit_says_where_it_is(found):
    [edit] = [edit for edit in found if edit.after == "sums = 1.0" and edit.kind == "constant"]
    assert (edit.line, edit.function, edit.before) == (12, "make.total", "sums = 0.5")


def test_only_the_functions_that_are_wanted_are_changed():
    assert {edit.function for edit in edits(SOURCE, lambda function: function == "")} == {""}


def test_the_same_text_gives_the_same_edits(found):
    assert edits(SOURCE) == found

"""What every command prints can be read at 60, 80 and 120 columns: nothing is cut, no line is too long, no number is lost."""

import re
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from difftest import cli
from difftest.report import layout
from difftest.report.table import Table, terminal

ROOT = Path(__file__).parents[3]
ZEROS = f"{Path(__file__).parents[1] / 'broken' / 'returns_zeros'}.py:rmsnorm"
WIDE = 400  # columns on which no table is broken
SMALL = ("--dtypes", "bf16,fp32", "--widths", "64", "--device", "cpu")
RUN = ("difftest", *SMALL, "--cases", 0, "--strength", 0, "--strength", 0, "--regimes", "normal,magnitudes")
COMMANDS = {
    "difftest": (*RUN, "--candidate", "torch", "--ops", "gemma_fused_add_rmsnorm,gelu_and_mul"),
    "difftest, several": (*RUN, "--candidate", "torch", "--ops", "rmsnorm", "--against", "torch-rmsnorm,torch"),
    "difftest, differs": (*RUN, "--candidate", ZEROS),
    "matrix": ("difftest", *SMALL, "--candidate", "torch,torch-rmsnorm", "--ops", "gemma_fused_add_rmsnorm", "--workers", 0),
    "identify": ("identify", "--op", "fused_add_rmsnorm", "--candidate", "torch-rmsnorm", "--widths", "64", "--device", "cpu"),
    "ledger": ("ledger", "--rows", 65537, "--width", 16384),
    "bench": ("bench", "--summary", ROOT / "benchmarks" / "results" / "bench-h200.jsonl"),
}


@pytest.fixture
def printed(monkeypatch, tmp_path):
    """Runs a command once; gives what it prints on a terminal of so many columns."""
    monkeypatch.chdir(tmp_path)

    def run(words):
        calls = []
        monkeypatch.setattr(Console, "print", lambda _, *what, **how: calls.append((what, how)))
        status = CliRunner().invoke(cli.main, list(map(str, words))).exit_code
        monkeypatch.undo()
        assert status in (0, 1)

        def shown(columns):
            screen = Console(width=columns, highlight=False)
            with screen.capture() as capture:
                for what, how in calls:
                    screen.print(*what, **how)
            return capture.get()

        return shown

    return run


def numbers(text):
    """The numbers that stand alone, as tables have them."""
    return Counter(re.findall(r"(?<![^\s(])[+-]?[\d,]+(?:\.\d+)?%?(?![^\s),])", text))


@pytest.mark.parametrize("command", COMMANDS)
def test_at_any_width_nothing_is_cut_and_no_number_is_lost(command, printed):
    shown = printed(COMMANDS[command])
    expected = numbers(shown(WIDE))
    assert sum(expected.values()) > 8
    for columns in (60, 80, 120):
        assert "…" not in shown(columns)
        assert not expected - numbers(shown(columns)), columns


WORDS = ("rmsnorm", "1,234,567", "-", "12.5%", "split, fp32 sum kept", "gemma_fused_add_rmsnorm")
ROWS = st.lists(st.tuples(*[st.sampled_from(words) for words in (WORDS, WORDS[:5], WORDS, WORDS, WORDS)]), min_size=1, max_size=3)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=25)
@given(ROWS, st.integers(60, 140), st.integers(1, 2))
def test_every_word_of_a_table_is_on_one_line_that_fits(rows, width, names):
    table = Table("", ("operator", "dtype", "output mismatches", "flashinfer-cuda", "max ULP"), tuple(rows), names=names)
    screen = Console(width=width, highlight=False)
    with screen.capture() as capture:
        screen.print(terminal(table))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert max(map(len, lines)) <= width
    words = Counter(" ".join(lines).split())
    assert not Counter(word for row in rows for entry in row for word in entry.split()) - words


def test_a_table_that_fits_is_one_part_with_its_heads_on_one_line():
    columns = [layout.column("operator", ["rmsnorm"], 40), layout.column("max ULP", ["1"], None)]
    assert layout.parts(columns, 1, 80) == [layout.Part((0, 1), (8, 7))]
    assert layout.parts(columns, 1, 13) == [layout.Part((0, 1), (8, 3))]
    assert layout.heads(["operator", "max ULP"], (8, 3)) == ["\noperator", "max\nULP"]


def test_a_table_that_does_not_fit_goes_on_in_parts_under_the_same_names():
    columns = [layout.column("operator", ["gemma rmsnorm"], 20), *[layout.column("n", ["1,234,567"], None)] * 3]
    assert [part.columns for part in layout.parts(columns, 1, 41)] == [(0, 1, 2, 3)]
    assert [part.columns for part in layout.parts(columns, 1, 36)] == [(0, 1, 2), (0, 3)]
    assert layout.parts(columns, 1, 36)[0].widths == (13, 9, 9)

"""Every generated page and block is what code and result files say, and a page can't ask for what nobody generates."""

import json
import re

import pytest
from click.testing import CliRunner

from difftest import cli
from difftest.matrix import file
from difftest.pages import blocks, command, power, sources, speed
from difftest.report import jsonl

MOST_LINES = 4_000


@pytest.fixture(scope="module")
def pages():
    """What each page would be, by its path."""
    return dict(command.pages())


def test_every_page_is_what_the_data_says(pages):
    stale = [path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run python cli.py docs"


def test_every_markdown_page_of_the_repository_is_looked_at(pages):
    root = sources.ROOT
    assert {*root.glob("*.md"), *(root / "docs").rglob("*.md")} == set(pages)


def test_the_plots_are_drawn_from_the_latest_benchmark():
    assert speed.stale_plots() == []


def test_every_block_stands_on_a_page(pages):
    used = set().union(*(blocks.names(text) for text in pages.values()))
    assert set(blocks.BLOCKS) == used


@pytest.mark.parametrize("name", blocks.BLOCKS)
def test_every_block_has_a_text_for_every_place_of_a_page(name):
    for page in (sources.ROOT / "README.md", sources.ROOT / "docs" / "speed.md"):
        text = blocks.BLOCKS[name](page)
        assert text.endswith("\n")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).is_file()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- no-such:start -->\n<!-- no-such:end -->", "no block has that name"),
        ("a\n<!-- forms:start -->\n", "has no end"),
        ("a\n<!-- forms:end -->\n", r"README.md:2: .* has no start"),
        ("<!-- forms:start -->\n<!-- claims:start -->\n<!-- claims:end -->", "inside of forms"),
        ("<!-- forms:start -->\n<!-- claims:end -->", "inside of forms"),
    ],
)
def test_marks_that_make_no_sense_are_an_error_that_names_the_line(text, message):
    with pytest.raises(ValueError, match=message):
        blocks.filled(sources.ROOT / "README.md", text)


def test_only_what_lies_between_the_marks_changes():
    text = "above\n<!-- claims:start -->\nold\n<!-- claims:end -->\nbelow\n"
    filled = blocks.filled(sources.ROOT / "README.md", text)
    assert filled.startswith("above\n<!-- claims:start -->\n| library |")
    assert filled.endswith("<!-- claims:end -->\nbelow\n")
    assert "old" not in filled
    assert blocks.filled(sources.ROOT / "README.md", filled) == filled


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository of two pages, one of them stale; nothing is drawn."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("<!-- claims:start -->\nold\n<!-- claims:end -->\n")
    for module in (sources, command):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(command, "MATRIX", sources.ROOT / "matrix.jsonl")
    monkeypatch.setattr(command, "WHO_ROUNDS_WHERE", tmp_path / "docs" / "who-rounds-where.md")
    monkeypatch.setattr(speed, "stale_plots", list)
    file.write(command.MATRIX, file.read("test", sources.MATRIX))
    return tmp_path


def docs(*words):
    return CliRunner().invoke(cli.main, ["docs", *words])


def test_docs_writes_what_is_stale_and_check_only_says_so(clone):
    before = (clone / "README.md").read_text()
    checked = docs("--check")
    assert checked.exit_code == 1
    assert "README.md: not what the data says" in checked.stdout
    assert "docs/who-rounds-where.md: not what the data says" in checked.stdout
    assert (clone / "README.md").read_text() == before
    written = docs()
    assert written.exit_code == 0
    assert "README.md: written" in written.stdout
    assert docs("--check").exit_code == 0
    assert docs().stdout == ""


def test_a_page_that_asks_for_an_unknown_block_is_bad_usage_in_a_line(clone):
    (clone / "docs" / "new.md").write_text("<!-- no-such:start -->\n<!-- no-such:end -->\n")
    found = docs("--check")
    assert found.exit_code == 2
    assert len(found.stderr.strip().splitlines()) == 1
    assert "new.md:1" in found.stderr


def test_outside_of_a_clone_there_is_nothing_to_write(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    found = docs()
    assert found.exit_code == 3
    assert "clone" in found.stderr


# --- result files ------------------------------------------------------------------------------------------------------


RESULTS = sorted(sources.RESULTS.glob("*.jsonl"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_a_result_file_says_once_what_holds_for_all_and_then_has_a_measurement_a_line(path):
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    head = json.loads(first)
    assert set(head) >= {"schema", "date", "environment", "parts"}
    assert "command" in head or "request" in head
    assert all(json.loads(line)["part"] in head["parts"] for line in lines)
    assert sum(len(jsonl.loads(path.read_text(encoding="utf-8"))[part]) for part in head["parts"] if part != "members") >= 1


def test_committed_results_are_few_and_in_one_form():
    others = {path.name for path in sources.RESULTS.iterdir()} - {path.name for path in RESULTS}
    assert others <= {"difftest-h200.log", "sanitizers-h200.log"}
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources.RESULTS.iterdir()) < MOST_LINES


def test_the_orders_are_shown_by_who_has_them(monkeypatch):
    def entry(provider, identity, **more):
        head = {"op": "rmsnorm", "dtype": "bf16", "width": 8, "provider": provider, "state": "tree", "identity": identity}
        return {**head, "lines": [f"lines of {identity}"], "depth": 3, "summary": "", "batches": {"1": "same"}, **more}

    found = [
        entry("a", "111111aaaaaa"),
        entry("b", "111111aaaaaa", batches={"1": "222222bbbbbb: 8 in sequence", "4": "no tree: why"}),
        entry("c", "at once", state="at once", summary="at once: in fp64", batches={}),
        {"op": "rmsnorm", "dtype": "bf16", "width": 8, "provider": "d", "skipped": "not installed"},
    ]
    document = {"date": "today", "rows": 256, "providers": {"a": "1.0"}, "orders": found}
    monkeypatch.setattr(sources, "latest", lambda kind: document)
    text = blocks.BLOCKS["orders"](sources.ROOT / "docs" / "order.md")
    assert "| a | `111111` | the same in calls of 1, 256 |" in text
    assert "| b | `111111` | width 8, 1 row: `222222`, 8 in sequence; width 8, 4 rows: no tree: why |" in text
    assert "| `111111` | 8 | 3 | lines of 111111aaaaaa | a bf16, b bf16 |" in text
    assert "- c, `rmsnorm` bf16, width 8: at once: in fp64" in text
    assert "- d, `rmsnorm` bf16: not measured, not installed" in text


def test_a_kernel_that_one_of_two_results_calls_wrong_is_called_wrong(monkeypatch):
    def result(seed, caught):
        entry = {
            "corpus": "honest",
            "name": "mine",
            "caught": caught,
            "caught_beyond": {},
            "first": "in one case" if caught else "",
        }
        return {"seeds": [seed], "entries": [{**entry, "seeds_missed": [] if caught else [seed]}]}

    monkeypatch.setattr(sources, "documents", lambda kind: [result(0, {"rate": 1}), result(1, {})])
    (entry,) = power._entries()
    assert (entry["caught"], entry["first"], entry["seeds_missed"]) == ({"rate": 1}, "in one case", [1])

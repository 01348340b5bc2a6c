"""What README.md and docs/ say: their code runs, their commands and options exist, their links lead somewhere."""

import re
import runpy
from pathlib import Path

import pytest

import cli
from reference.operators import OPERATORS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language):
    """(line number, text) of each fenced block of README.md in a language."""
    page = README.read_text(encoding="utf-8")
    return [(page[: m.start()].count("\n") + 1, m.group(2)) for m in FENCE.finditer(page) if m.group(1) == language]


PYTHON = blocks("python")
COMMANDS = sorted({line.partition("  #")[0].strip() for _, text in blocks("sh") for line in text.splitlines() if line})
COMMANDS += sorted({line[2:] for _, text in blocks("text") for line in text.splitlines() if line.startswith("$ ")})


@pytest.mark.parametrize("text", [text for _, text in PYTHON], ids=[f"line {line}" for line, _ in PYTHON])
def test_a_block_of_python_runs(text, tmp_path):
    file = tmp_path / "block.py"  # the emulator reads a kernel's source from its file
    file.write_text(text)
    runpy.run_path(str(file))


def test_the_readmes_candidate_conforms(tmp_path, monkeypatch):
    (text,) = [text for _, text in PYTHON if text.startswith("# mine.py")]
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    words = "difftest --candidate mine.py:rmsnorm --dtypes bf16 --widths 111 --regimes normal --cases 0 --device cpu"
    with pytest.raises(SystemExit) as end:
        cli.main(words.split())
    assert end.value.code == 0


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python cli.py ")])
def test_a_command_and_its_options_exist(command):
    name, *words = command.removeprefix("python cli.py ").split()
    assert name in cli.main.commands
    known = {option for parameter in cli.main.commands[name].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} - {"--help"} <= known


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_a_make_target_exists_and_its_options_too(command):
    target = command.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    given = re.search(r'ARGS="(.*)"', command)
    if target == "difftest" and given:
        test_a_command_and_its_options_exist(f"python cli.py difftest {given.group(1)}")


def test_the_scripts_that_the_pages_name_exist():
    named = {script for page in PAGES for script in re.findall(r"benchmarks/\w+\.py", page.read_text(encoding="utf-8"))}
    assert "benchmarks/tune.py" in named
    assert all((ROOT / script).is_file() for script in named), named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_table_of_operators_names_every_operator_with_its_contracts():
    page = README.read_text(encoding="utf-8")
    rows = {m.group(1): m.group(0) for m in re.finditer(r"^\| `(\w+)\(.*$", page, re.MULTILINE)}
    assert list(rows) == list(OPERATORS)
    for name, row in rows.items():
        codes = row.rpartition(" | ")[2].removesuffix(" |")
        assert codes in (", ".join(OPERATORS[name].codes), "the same")

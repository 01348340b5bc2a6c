"""How the tests call the command line: in this process, files under the test's own folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from difftest import cli

BROKEN = Path(__file__).parent / "broken"


class Ran:
    """A finished command: its status, its standard output and error as one text each, its JSON if there is one."""

    def __init__(self, result, json_file: Path) -> None:
        self.status = result.exit_code
        self.out, self.err = result.stdout, result.stderr
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.json = json.loads(json_file.read_text()) if json_file.exists() else None


@pytest.fixture
def difftest(tmp_path):
    """Runs `difftest` with the words given, on the CPU, and reads its JSON."""

    def run(*words: object) -> Ran:
        file = tmp_path / "run.json"
        strength = "0" if "--rows" in words else "1"  # the grid alone, or each value of a dimension once
        where = ["--device", "cpu", "--strength", strength, "--json", str(file), "--failures", str(tmp_path / "failures")]
        return Ran(CliRunner().invoke(cli.main, ["difftest", *where, *map(str, words)]), file)

    return run


@pytest.fixture
def broken():
    """The spelling of a candidate in `broken/`: the file's name and the function's."""
    return lambda file, function: f"{BROKEN / file}.py:{function}"

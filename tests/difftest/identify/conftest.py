"""How these tests name their candidates, and call the command line in this process."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from difftest import cli
from reference.operators import OPERATORS

CANDIDATES = Path(__file__).parent / "candidates"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@pytest.fixture(autouse=True)
def one_thread():
    """The tensors are small: threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def operator_of(function: str):
    """The operator in a candidate's name."""
    return OPERATORS[max((op for op in OPERATORS if op in function), key=len)]


@pytest.fixture
def candidate(monkeypatch):
    """A function of `candidates/`, by file and name, and its operator."""
    monkeypatch.syspath_prepend(str(CANDIDATES))

    def load(file: str, function: str):
        module = sys.modules.get(file) or importlib.import_module(file)
        return operator_of(function), getattr(module, function)

    return load


@pytest.fixture
def run(tmp_path):
    """Runs a command; gives its status, its output and its JSON."""

    def call(*words: object):
        file = tmp_path / "found.json"
        result = CliRunner().invoke(cli.main, [*map(str, words), "--json", str(file)])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, json.loads(file.read_text()) if file.exists() else None

    return call


def spelled(file: str, function: str) -> str:
    """A candidate as the command line spells it."""
    return f"{CANDIDATES / file}.py:{function}"

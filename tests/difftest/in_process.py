"""Fixtures that call the command line in this process, for a conftest to import."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from difftest import cli


@pytest.fixture(autouse=True)
def one_thread():
    """The tensors are small: threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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

"""How these tests name their candidates."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

from reference.operators import OPERATORS

from ..in_process import one_thread, run

__all__ = ["candidate", "one_thread", "operator_of", "run", "spelled"]
CANDIDATES = Path(__file__).parent / "candidates"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


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


def spelled(file: str, function: str) -> str:
    """A candidate as the command line spells it."""
    return f"{CANDIDATES / file}.py:{function}"

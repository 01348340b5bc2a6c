"""Optional libraries: asked for by the option that needs them, before the run. Imports none of them."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from difftest.errors import LackingError, UsageError


def need(option: str, library: str) -> None:
    """LackingError, with the cure, when an optional library is not installed."""
    if importlib.util.find_spec(library) is None:
        raise LackingError(f"{option}: needs {library}, which is not installed: pip install 'numba-kernels[report]'")


def make_folder(option: str, folder: Path) -> None:
    """Makes the folder; UsageError when it can't be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option}: {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{option}: {folder} is not writable")

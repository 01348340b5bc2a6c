"""A function in a Python file as a provider: the file is imported when it is named."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from difftest.errors import UsageError, one_of
from difftest.interrupts import no_exit
from reference.contracts import Contract, contract
from reference.providers import Provider
from reference.providers.protocol import Call, missing_device


class FileCandidate:
    """One function of one Python file, for whatever operator it is tested as. It claims the contract it is held to."""

    in_place = True

    def __init__(self, spec: str, function: Callable) -> None:
        self.name = spec
        self._function = function

    def claims(self, op: str) -> Contract | None:
        """The operator's default contract."""
        return contract(op)

    def check(self, case: Call) -> str | None:
        """A reason only for a CUDA device that torch does not see: nothing else is refused ahead of the call."""
        return missing_device(torch.device(case.device))

    def function(self, op: str, contract: Contract | None = None) -> Callable:
        """The function itself, whatever the contract."""
        return self._function

    def native(self, op: str) -> Callable:
        """The function itself."""
        return self._function

    def version(self) -> str:
        """The file's own word for its version, if it has one."""
        return str(getattr(inspect.getmodule(self._function), "__version__", "file"))


def load(spec: str, option: str) -> Provider:
    """The candidate that `FILE.py:FUNCTION` means. UsageError, which names the option, where there is none."""
    file, _, name = spec.rpartition(":")
    if not file:
        raise UsageError(f"{option}: {spec!r} lacks the function, as in {spec}:FUNCTION")
    try:
        path = Path(file).resolve()
        there = path.is_file()
    except (OSError, RuntimeError, ValueError):  # no path of a file: a NUL in it, a link to itself
        there = False
    if not there:
        raise UsageError(f"{option}: no file {file}")
    module_spec = importlib.util.spec_from_file_location(f"candidate_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise UsageError(f"{option}: {file} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    sys.path.insert(0, str(path.parent))  # its imports from its own folder, at its import and at its calls
    try:
        with no_exit():
            module_spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a candidate's file may raise anything, SystemExit too
        raise UsageError(f"{option}: {file} does not import: {type(error).__name__}: {error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        own = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        raise one_of(option, name, own, what=f"function of {file}")
    return FileCandidate(spec, function)

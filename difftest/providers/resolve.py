"""From a name on the command line to an implementation: a registered provider, or a function in a file."""

from __future__ import annotations

from difftest.errors import UsageError, one_of
from difftest.providers import file
from difftest.providers.numba import NumbaProvider
from difftest.providers.textbook import TextbookProvider
from reference import providers
from reference.operators import OPERATORS
from reference.providers import Provider

providers.register(NumbaProvider())
providers.register(TextbookProvider())


def is_file(spec: str) -> bool:
    """Whether a candidate's spelling means a function in a file."""
    return ".py:" in spec or spec.endswith(".py")


def resolve(spec: str, option: str = "--candidate") -> Provider:
    """The implementation that `NAME` or `FILE.py:FUNCTION` means. UsageError, one line, where there is none."""
    if is_file(spec):
        return file.load(spec, option)
    try:
        return providers.get(spec)
    except ValueError as error:
        if spec in providers.names():
            raise UsageError(f"{option}: {error}") from None
        raise one_of(option, spec, (*providers.names(), "FILE.py:FUNCTION")) from None
    except SystemExit as error:  # a script that was named as an entry point, say
        raise UsageError(f"{option}: {spec} does not import: SystemExit: {error}") from None


def operators_of(spec: str) -> list[str]:
    """The operators that a candidate is tested as when none are named: for a file, what its function's name says."""
    if not is_file(spec):
        return list(OPERATORS)
    return [operator_named(spec.rpartition(":")[2])]


def operator_named(function: str, option: str = "--ops") -> str:
    """The operator that a function's name says. UsageError where it says none."""
    named = [op for op in OPERATORS if op in function]
    if not named:
        raise UsageError(f"{option}: name the operator that {function} is, one of {', '.join(OPERATORS)}")
    return max(named, key=len)  # "gemma_rmsnorm" also contains "rmsnorm"

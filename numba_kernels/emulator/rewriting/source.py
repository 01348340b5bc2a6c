"""The source of a Python function, held against the file it came from."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import textwrap
import types as python_types
from pathlib import Path
from typing import Any

from .program import Location, Program


def python_function(function: Any) -> Any:
    """The plain function of a kernel: itself, or a dispatcher's ``py_func``."""
    return getattr(function, "py_func", function)


def is_device_function(value: Any) -> bool:
    """Functions whose source the emulator rewrites; ``@njit`` dispatchers and intrinsics work as they are."""
    if isinstance(value, python_types.FunctionType):
        return not value.__module__.startswith(("numba.", "numpy."))
    return hasattr(value, "py_func") and type(value).__module__.startswith(("numba.cuda", "numba_cuda"))


@functools.lru_cache(1024)
def _text_of(code: python_types.CodeType) -> tuple[str, int]:
    """A function's text, indented no more than its first line, and the number of that line; finding its end takes long."""
    lines, first = inspect.getsourcelines(code)
    return textwrap.dedent("".join(lines)), first


def definition_of(program: Program, function: Any) -> tuple[ast.FunctionDef, str]:
    """A plain function's definition without decorators, each node with its :class:`Location` in the attribute ``at``; its file.

    Raises :class:`UnsupportedKernel` where the source can't be read or is no longer the function's.
    """
    name, file = function.__name__, inspect.getsourcefile(function) or "?"

    def refusal(reason: str, line: int) -> Exception:
        return program.refusal(reason, Location(program.name, file, line))

    try:
        text, first = _text_of(function.__code__)
    except (OSError, TypeError) as error:
        raise refusal(f"the source of {name} cannot be read", 0) from error
    tree = ast.parse(text)
    ast.increment_lineno(tree, first - 1)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise refusal(f"{name} is not written as a def", first)
    if not is_unchanged(function.__code__):
        raise refusal(f"the file of {name} has changed since it was imported", first)
    arguments = definition.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise refusal(f"{name} takes *args, **kwargs or keyword-only parameters", first)
    definition.decorator_list, definition.returns = [], None
    for node in ast.walk(definition):
        node.at = Location(name, file, getattr(node, "lineno", first))  # type: ignore[attr-defined]
    return definition, file


def is_unchanged(code: python_types.CodeType) -> bool:
    """Whether a function's file still holds the text that the function was made from.

    What runs is rewritten from the text, so another text at the function's lines would be another function, and its compiled
    form would be kept under this one's name.
    """
    try:
        stamp = os.stat(code.co_filename).st_mtime_ns
    except OSError:  # not from a file: what inspect finds is what was typed
        return True
    return (code.co_name, code.co_firstlineno, code.co_code) in _code_of_file(code.co_filename, stamp)


@functools.lru_cache(256)
def _code_of_file(file: str, stamp: int) -> frozenset[tuple[str, int, bytes]]:
    """Name, first line and bytecode of every function in a file."""
    found = set()
    try:
        waiting = [compile(Path(file).read_text(), file, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError, OSError):  # in the middle of being written
        return frozenset()
    while waiting:
        code = waiting.pop()
        found.add((code.co_name, code.co_firstlineno, code.co_code))
        waiting += [constant for constant in code.co_consts if isinstance(constant, python_types.CodeType)]
    return frozenset(found)

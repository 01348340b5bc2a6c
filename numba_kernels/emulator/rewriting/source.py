"""The source of a Python function, held against the file it came from."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import textwrap
import types as python_types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .program import Location, Program


def python_function(function: Any) -> Any:
    """The plain function of a kernel: itself, or a dispatcher's ``py_func``."""
    return getattr(function, "py_func", function)


def is_of_numba(module: str) -> bool:
    """Whether a module is Numba's or NumPy's own; kernels and tests that these ship are as users' code."""
    return module.startswith(("numba.", "numpy.")) and not any(part in module for part in (".tests.", ".cuda.kernels."))


class LocalFunction:
    """An inner function or a lambda, which is written out where it is called: its definition, and the scope ``around`` it."""

    def __init__(self, tree: ast.FunctionDef | ast.Lambda, around: Any) -> None:
        if isinstance(tree, ast.Lambda):
            result = ast.Return(tree.body)
            result.at = tree.at  # type: ignore[attr-defined]
            definition = ast.FunctionDef("lambda_", tree.args, [result], [], None, None, lineno=tree.lineno)
            definition.at = tree.at  # type: ignore[attr-defined]
            tree = definition
        self.tree, self.around, self.__name__ = tree, around, tree.name

    def check(self, program: Program) -> None:
        """Raises :class:`UnsupportedKernel` for forms that are not written out."""
        at = self.tree.at  # type: ignore[attr-defined]
        if self.tree.decorator_list:
            raise program.refusal(f"the inner function {self.__name__} is decorated", at)
        check_parameters(program, self.tree, self.__name__, at)


def own_nodes(tree: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body, and not those inside its inner functions."""
    waiting: list[ast.AST] = list(reversed(tree.body))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def is_device_function(value: Any) -> bool:
    """Functions whose source the emulator rewrites; ``@njit`` dispatchers and intrinsics work as they are."""
    if isinstance(value, LocalFunction):
        return True
    if isinstance(value, python_types.FunctionType):
        return not is_of_numba(value.__module__ or "")
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
    check_parameters(program, definition, name, Location(program.name, file, first))
    definition.decorator_list, definition.returns = [], None
    for node in ast.walk(definition):
        node.at = Location(name, file, getattr(node, "lineno", first))  # type: ignore[attr-defined]
    return definition, file


def check_parameters(program: Program, definition: ast.FunctionDef, name: str, at: Location) -> None:
    arguments = definition.args
    if arguments.kwarg or arguments.kwonlyargs:
        raise program.refusal(f"{name} takes **kwargs or keyword-only parameters", at)


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

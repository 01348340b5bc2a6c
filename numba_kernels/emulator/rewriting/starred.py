"""A function that takes ``*args``, for a call that gives it so many: each becomes a parameter of its own.

``f(*args)`` is then a call with these, ``len(args)`` and ``args[0]`` are what they stand for, and any other ``args`` is a tuple.
"""

from __future__ import annotations

import ast
from typing import Any

from .program import Program


def spread_out(program: Program, definition: ast.FunctionDef, given: int) -> None:
    """Change a definition that has ``*args`` for calls with ``given`` arguments by position; others are left as they are."""
    arguments = definition.args
    if arguments.vararg is None:
        return
    name, arguments.vararg = arguments.vararg.arg, None
    before = len(arguments.posonlyargs) + len(arguments.args)
    known = {n.id for n in ast.walk(definition) if isinstance(n, ast.Name)}
    names = [f"{name}_{k}{'_' * (f'{name}_{k}' in known)}" for k in range(max(0, given - before))]
    if names:
        arguments.args += [ast.arg(n) for n in names]
        arguments.defaults = []  # none is left out
    _Spread(program, name, names).visit(definition)


class _Spread(ast.NodeTransformer):
    def __init__(self, program: Program, name: str, names: list[str]) -> None:
        self.program, self.name, self.names = program, name, names

    def is_it(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self.name

    def visit_arg(self, node: Any) -> ast.AST:
        if node.arg == self.name:
            raise self.program.refusal(f"a parameter has the name of the *{self.name} around it", node.at)
        return node

    def visit_Name(self, node: Any) -> ast.AST:
        if not self.is_it(node):
            return node
        if not isinstance(node.ctx, ast.Load):
            raise self.program.refusal(f"an assignment to *{self.name}", node.at)
        return _at(node, ast.Tuple([_at(node, ast.Name(n, ast.Load())) for n in self.names], ast.Load()))

    def visit_Subscript(self, node: Any) -> ast.AST:
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if self.is_it(node.value) and isinstance(index, int) and -len(self.names) <= index < len(self.names):
            return _at(node, ast.Name(self.names[index], ast.Load()))
        return self.generic_visit(node)

    def visit_Call(self, node: Any) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1 and self.is_it(node.args[0]):
            return _at(node, ast.Constant(len(self.names)))
        spread: list[Any] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred) and self.is_it(argument.value):
                spread += [_at(argument, ast.Name(n, ast.Load())) for n in self.names]
            else:
                spread.append(argument)
        node.args = spread
        return self.generic_visit(node)


def _at(here: Any, made: Any) -> Any:
    """A new node, at the location of another."""
    made.at = here.at
    return ast.copy_location(made, here)

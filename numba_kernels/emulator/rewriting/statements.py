"""The frame of a pass: it rewrites statements one by one, and may write others before each."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from .program import NOWHERE, Location, Program

Node = TypeVar("Node", bound=ast.AST)


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def location_of(node: ast.AST) -> Location:
    return getattr(node, "at", NOWHERE)


def is_simple(node: ast.AST) -> bool:
    """Whether evaluating an expression again, later, gives the same and costs nothing."""
    return isinstance(node, ast.Name | ast.Constant)


class StatementPass:
    """Subclasses define ``do_TYPE(statement)``, which writes a statement's new form, and ``expression(node)``.

    State: ``program``; ``out``, the statements written so far, which nested bodies replace while they are rewritten; ``here``,
    the location of the statement that is rewritten, which is given to all that is written.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.out: list[ast.stmt] = []
        self.here = NOWHERE

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The new form of a body."""
        outer, here, self.out = self.out, self.here, []
        self.each(statements)
        inner, self.out, self.here = self.out, outer, here
        if statements and not inner:
            inner = [ast.Pass()]
            inner[0].at = location_of(statements[0])  # type: ignore[attr-defined]
        return inner

    def each(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.here = location_of(statement)
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        method: Any = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            self.emit(self.rebuilt(node))
        else:
            method(node)

    def expression(self, node: ast.expr) -> ast.expr:
        return self.rebuilt(node)

    def rebuilt(self, node: Node) -> Node:
        """A copy with each expression in it rewritten, then each body."""
        made = copy.copy(node)
        for name, child in ast.iter_fields(node):
            setattr(made, name, self._part(child))
        return made

    def _part(self, child: Any) -> Any:
        if isinstance(child, ast.expr):
            return self.expression(child)
        if isinstance(child, ast.keyword):
            return self.rebuilt(child)
        if isinstance(child, list) and child and isinstance(child[0], ast.stmt):
            return self.block(child)
        return [self._part(c) for c in child] if isinstance(child, list) else child

    def emit(self, statement: ast.stmt) -> None:
        if not hasattr(statement, "at"):
            for node in ast.walk(statement):
                if not hasattr(node, "at"):
                    node.at = self.here  # type: ignore[attr-defined]
        self.out.append(statement)

    def assign(self, name: str, value: ast.expr) -> ast.Name:
        self.emit(ast.Assign([ast.Name(name, ast.Store())], value))
        return load(name)

    def kept(self, value: ast.expr, hint: str = "v") -> ast.expr:
        """The value, in a variable if evaluating it later could give something else."""
        return value if is_simple(value) else self.assign(self.program.fresh(hint), value)

    def call(self, function: str, *arguments: ast.expr) -> None:
        self.emit(ast.Expr(ast.Call(load(function), list(arguments), [])))

    def raw(self, text: str) -> None:
        for statement in ast.parse(text).body:
            self.emit(statement)

    def refusal(self, reason: str, node: ast.AST) -> Exception:
        return self.program.refusal(reason, location_of(node) if location_of(node) is not NOWHERE else self.here)

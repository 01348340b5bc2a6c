"""The line that runs is recorded in the environment before each statement that can fail."""

from __future__ import annotations

import ast

from ..environment import Env
from .program import Location, Program
from .statements import StatementPass, parsed

LOCATION = int(Env.LOCATION)


def can_fail(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Subscript | ast.Call | ast.Raise | ast.Assert) for n in ast.walk(node))


class Track(StatementPass):
    """State: ``marked``, the location that was recorded last, None where that depends on the way taken; ``restores``: the
    function gives its caller's location back."""

    def __init__(self, program: Program, *, restores: bool) -> None:
        super().__init__(program)
        self.marked: Location | None = None
        self.restores = restores

    def mark(self) -> None:
        if self.here != self.marked:
            self.raw(f"__poke(__env, {LOCATION}, {self.program.number_of(self.here)})")
            self.marked = self.here

    def block(self, statements) -> list[ast.stmt]:
        self.marked = None
        made = super().block(statements)
        self.marked = None
        return made

    def function(self, body: list[ast.stmt], here: Location) -> list[ast.stmt]:
        made = self.block(body)
        if not self.restores:
            return made
        self.out, self.here = [], here
        self.raw(f"__caller = __peek(__env, {LOCATION})")
        self.out += made
        if not (made and isinstance(made[-1], ast.Return)):  # a body that constants fold away is empty
            self.give_back()
        return self.out

    def give_back(self) -> None:
        self.raw(f"__poke(__env, {LOCATION}, __caller)")

    def statement(self, node: ast.stmt) -> None:
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is not None:
            method(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
            self.emit(node)
            self.marked = None
        else:
            if can_fail(node) or self.program.full:
                self.mark()
            self.emit(node)

    def do_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is not None and (can_fail(value) or self.program.full):
            self.mark()
        if self.restores:
            value = None if value is None else self.kept(value, "result")
            self.give_back()
        self.emit(ast.Return(value))

    def do_If(self, node: ast.If) -> None:
        if can_fail(node.test) or self.program.full:
            self.mark()
        self.emit(ast.If(node.test, self.block(node.body), self.block(node.orelse)))

    def do_For(self, node: ast.For) -> None:
        if can_fail(node.iter) or self.program.full:
            self.mark()
        body = self.block(node.body)
        if self.program.full and not isinstance(node.iter, ast.Call):  # the next element is read after the body's lines
            here = self.out
            self.out, self.marked = body, None
            self.mark()
            self.out = here
        self.emit(ast.For(node.target, node.iter, body, self.block(node.orelse)))

    def do_While(self, node: ast.While) -> None:
        test = node.test
        if can_fail(test) or self.program.full:  # and the body leaves another line behind
            test = ast.BoolOp(ast.And(), [parsed(f"__mark(__env, {self.program.number_of(self.here)})"), test])
        self.emit(ast.While(test, self.block(node.body), self.block(node.orelse)))

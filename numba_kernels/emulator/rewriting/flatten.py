"""Waits leave the expressions they stand in: each becomes a statement of its own, ``temporary = wait(arguments)``.

A wait is a call that may reach a barrier, a shuffle, a vote or a condition, also through device functions. What is evaluated
before it is kept in variables, so the order of evaluation stays.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from .program import UNKNOWN, Location, Program
from .scope import Scope
from .source import is_device_function, python_function
from .statements import StatementPass, location_of
from .targets import is_collective, waits_for


def waits_inside(program: Program, function: Any, callers: tuple[Any, ...] = ()) -> bool:
    """Whether running a device function may reach a wait."""
    if function not in program.waiting:
        program.waiting[function] = _waits_inside(program, function, callers)
    return program.waiting[function]


def _waits_inside(program: Program, function: Any, callers: tuple[Any, ...]) -> bool:
    scope = Scope(program, function)
    callers = (*callers, scope.function)
    for node in ast.walk(scope.tree):
        if not isinstance(node, ast.Call):
            continue
        target = scope.value(node.func)
        if is_collective(target) or waits_for(target):
            return True
        if is_device_function(target):
            plain = python_function(target)
            if plain in callers:
                at = location_of(node)
                raise program.refusal(f"{plain.__name__} calls itself", Location(program.name, at.file, at.line))
            if waits_inside(program, plain, callers):
                return True
    return False


class Flatten(StatementPass):
    """State: ``callers``, the functions around; which captured values wait, by identity."""

    def __init__(self, program: Program, callers: tuple[Any, ...]) -> None:
        super().__init__(program)
        self.callers = callers
        self._targets: dict[int, bool] = {}

    def is_wait(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        target = self.program.value(node.func)
        if target is UNKNOWN:
            return False
        if id(target) not in self._targets:
            self._targets[id(target)] = bool(
                is_collective(target)
                or waits_for(target)
                or (is_device_function(target) and waits_inside(self.program, target, self.callers))
            )
        return self._targets[id(target)]

    def waits(self, node: ast.AST) -> bool:
        return any(self.is_wait(part) for part in ast.walk(node))

    # --- statements --------------------------------------------------------------------------------------------------

    def statement(self, node: ast.stmt) -> None:
        if self.waits(node):
            super().statement(node)
        else:
            self.emit(node)

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and self.is_wait(node.value):
            self.emit(ast.Expr(self.with_arguments(node.value)))
        else:
            self.emit(self.rebuilt(node))

    def do_While(self, node: ast.While) -> None:
        if self.waits(node.test):
            raise self.refusal("a collective in a while condition: compute it before the loop and again in its body", node)
        self.emit(self.rebuilt(node))

    def do_Assign(self, node: ast.Assign) -> None:
        (target,), value = node.targets, node.value
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and self.is_wait(value):
            self.emit(ast.Assign([target], self.with_arguments(value)))
            return
        value = self.expression(value)
        if self.waits(target):
            value = self.kept(value)
        self.emit(ast.Assign([self.target(target)], value))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        target: Any = node.target
        if isinstance(target, ast.Name):
            self.emit(ast.AugAssign(target, node.op, self.expression(node.value)))
            return
        if isinstance(target, ast.Attribute):
            value = self.kept(self.expression(node.value))
            self.emit(ast.AugAssign(target, node.op, value))
            return
        array = self.assign(self.program.fresh("array"), self.expression(target.value))
        index = self.assign(self.program.fresh("index"), self.expression(target.slice))
        old = self.assign(self.program.fresh("old"), ast.Subscript(array, index, ast.Load()))
        value = self.expression(node.value)
        self.emit(ast.Assign([ast.Subscript(array, index, ast.Store())], ast.BinOp(old, node.op, value)))

    def target(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self.target(e) for e in node.elts], ast.Store())
        if isinstance(node, ast.Subscript):
            array, index = self.sequence([node.value, node.slice])
            return ast.Subscript(array, index, ast.Store())
        return node

    # --- expressions -------------------------------------------------------------------------------------------------

    def sequence(self, nodes: Sequence[ast.expr]) -> list[ast.expr]:
        """Expressions that are evaluated one after the other: what precedes a wait is kept in a variable."""
        last = max((k for k, node in enumerate(nodes) if self.waits(node)), default=-1)
        done = []
        for k, node in enumerate(nodes):
            value = self.expression(node)
            done.append(self.kept(value) if k < last else value)
        return done

    def expression(self, node: ast.expr) -> ast.expr:
        if not self.waits(node):
            return node
        method: Any = getattr(self, f"value_{type(node).__name__}", None)
        if method is None:
            raise self.refusal(f"a collective inside a {type(node).__name__}", node)
        return method(node)

    def value_Call(self, node: ast.Call) -> ast.expr:
        made = self.with_arguments(node)
        return self.assign(self.program.fresh(), made) if self.is_wait(node) else made

    def with_arguments(self, node: ast.Call) -> ast.Call:
        function = node.func if isinstance(node.func, ast.Name) else self.expression(node.func)
        values = self.sequence([*node.args, *(k.value for k in node.keywords)])
        named = [ast.keyword(k.arg, v) for k, v in zip(node.keywords, values[len(node.args) :], strict=True)]
        made = ast.Call(function, values[: len(node.args)], named)
        made.at, made.text = location_of(node), getattr(node, "text", "")  # type: ignore[attr-defined]
        return made

    def value_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return ast.UnaryOp(node.op, self.expression(node.operand))

    def value_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Attribute(self.expression(node.value), node.attr, ast.Load())

    def value_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.sequence([node.left, node.right])
        return ast.BinOp(left, node.op, right)

    def value_Tuple(self, node: ast.Tuple) -> ast.expr:
        return ast.Tuple(self.sequence(node.elts), ast.Load())

    def value_Subscript(self, node: ast.Subscript) -> ast.expr:
        array, index = self.sequence([node.value, node.slice])
        return ast.Subscript(array, index, ast.Load())

    def value_Compare(self, node: ast.Compare) -> ast.expr:
        parts = [node.left, *node.comparators]
        if len(parts) > 2 and any(self.waits(p) for p in parts[2:]):
            raise self.refusal("a collective in the tail of a chained comparison, which may not be evaluated", node)
        first, *others = self.sequence(parts)
        return ast.Compare(first, node.ops, others)

    def value_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        if any(self.waits(v) for v in node.values[1:]):
            raise self.refusal("a collective in an `and` / `or` operand that may not be evaluated", node)
        return ast.BoolOp(node.op, [self.expression(node.values[0]), *node.values[1:]])

    def value_IfExp(self, node: ast.IfExp) -> ast.expr:
        if self.waits(node.body) or self.waits(node.orelse):
            raise self.refusal("a collective in a branch of a conditional expression", node)
        return ast.IfExp(self.expression(node.test), node.body, node.orelse)

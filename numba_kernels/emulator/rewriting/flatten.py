"""Waits leave the expressions they stand in: each becomes a statement of its own, ``temporary = wait(arguments)``.

A wait is a call that may reach a barrier, a shuffle, a vote or a condition, also through device functions. Inner functions, calls
that are given one, and assignments inside expressions are treated alike. What is evaluated before it is kept in variables, so the
order of evaluation stays; where it may not be evaluated at all, it stands in a branch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from .program import UNKNOWN, Program
from .scope import scope_of
from .source import LocalFunction, is_device_function, python_function
from .statements import StatementPass, load, location_of
from .targets import ARRAYS, device_array, is_collective, is_hashable, waits_for


def waits_inside(program: Program, function: Any, callers: tuple[Any, ...] = ()) -> bool:
    """Whether a device function must be written out: running it may reach a wait, or it asks for an array of another's dtype, or
    for a device array, which is the kernel's parameter."""
    if function not in program.waiting:
        program.waiting[function] = _waits_inside(program, function, callers)
    return program.waiting[function]


def _waits_inside(program: Program, function: Any, callers: tuple[Any, ...]) -> bool:
    scope = scope_of(program, function)
    callers = (*callers, scope.function)
    for node in ast.walk(scope.tree):
        if isinstance(node, ast.Call):
            target = scope.value(node.func)
            if is_collective(target) or waits_for(target) or (is_hashable(target) and target in ARRAYS and takes_dtype(node)):
                return True
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        value = scope.value(node)
        if device_array(value) is not None:
            return True
        if is_device_function(value):
            plain = python_function(value)
            if plain not in callers and waits_inside(program, plain, callers):
                return True
    return False


def takes_dtype(node: ast.Call) -> bool:
    """Whether an array is asked for with the dtype of another, which is known where the function is written out."""
    given = [*node.args, *(k.value for k in node.keywords)]
    return any(isinstance(a, ast.Attribute) and a.attr == "dtype" for a in given)


def is_written_out(program: Program, node: ast.Call, callers: tuple[Any, ...]) -> bool:
    """Whether the call of a device function is written out before the statement it stands in: it may wait, or reads variables of
    the function around it, itself or through a function that it is given."""
    given = [program.value(a) for a in (*node.args, *(k.value for k in node.keywords))]
    if any(is_collective(value) or waits_for(value) for value in given):
        return True
    functions = [program.value(node.func), *(value for value in given if is_device_function(value))]
    return any(isinstance(f, LocalFunction) or waits_inside(program, f, callers) for f in functions)


class Flatten(StatementPass):
    """State: ``callers``, the functions around; which captured values and which nodes wait, by identity."""

    def __init__(self, program: Program, callers: tuple[Any, ...]) -> None:
        super().__init__(program)
        self.callers = callers
        self._targets: dict[int, bool] = {}
        self._waits: dict[int, tuple[ast.AST, bool]] = {}  # a node, kept so that its id stays its own, and whether it waits

    def is_wait(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.NamedExpr)
        target = self.program.value(node.func)
        if target is UNKNOWN:
            return False
        if is_device_function(target):
            return is_written_out(self.program, node, self.callers)
        if id(target) not in self._targets:
            self._targets[id(target)] = bool(is_collective(target) or waits_for(target))
        return self._targets[id(target)]

    def waits(self, node: ast.AST) -> bool:
        known = self._waits.get(id(node))
        if known is None:
            waits = self.is_wait(node) or any(self.waits(part) for part in ast.iter_child_nodes(node))
            known = self._waits[id(node)] = node, waits
        return known[1]

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
        if not self.waits(node.test):
            self.emit(self.rebuilt(node))
            return
        if any(isinstance(n, ast.Break | ast.Continue) for n in node.orelse):
            raise self.refusal("a collective in the condition of a while loop whose else leaves another loop", node)
        end = [*self.block(node.orelse), ast.Break()]

        def leave() -> None:
            self.emit(ast.If(ast.UnaryOp(ast.Not(), self.expression(node.test)), end, []))

        self.emit(ast.While(ast.Constant(True), [*self.aside(leave), *self.block(node.body)], []))

    def aside(self, write: Callable[[], object]) -> list[ast.stmt]:
        """The statements that ``write`` emits."""
        outer, self.out = self.out, []
        write()
        inner, self.out = self.out, outer
        return inner

    def chosen(self, test: ast.expr, body: ast.expr, orelse: ast.expr | None, name: str) -> ast.Name:
        """A variable that is one of two expressions, of which one is evaluated; without ``orelse`` it is what it was."""
        yes = self.aside(lambda: self.assign(name, self.expression(body)))
        no = [] if orelse is None else self.aside(lambda: self.assign(name, self.expression(orelse)))
        self.emit(ast.If(test, yes, no))
        return load(name)

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
        named = {n.target.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
        done = []
        for k, node in enumerate(nodes):
            value = self.expression(node)
            if k < last:
                is_reassigned = isinstance(value, ast.Name) and value.id in named
                value = self.assign(self.program.fresh(), value) if is_reassigned else self.kept(value)
            done.append(value)
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

    def value_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        return self.assign(node.target.id, self.expression(node.value))

    def value_Slice(self, node: ast.Slice) -> ast.expr:
        given = [part for part in (node.lower, node.upper, node.step) if part is not None]
        values = iter(self.sequence(given))
        return ast.Slice(*(None if part is None else next(values) for part in (node.lower, node.upper, node.step)))

    def value_Compare(self, node: ast.Compare) -> ast.expr:
        parts = [node.left, *node.comparators]
        if not any(self.waits(p) for p in parts[2:]):
            first, *others = self.sequence(parts)
            return ast.Compare(first, node.ops, others)
        left, right = (self.kept(value) for value in self.sequence(parts[:2]))
        holds = self.assign(self.program.fresh(), ast.Compare(left, node.ops[:1], [right]))
        rest = ast.Compare(right, node.ops[1:], parts[2:])
        return self.chosen(holds, rest, None, holds.id)

    def value_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        wait = next((k for k, v in enumerate(node.values) if k and self.waits(v)), None)
        if wait is None:
            return ast.BoolOp(node.op, [self.expression(node.values[0]), *node.values[1:]])
        first, rest = _joined(node.op, node.values[:wait]), _joined(node.op, node.values[wait:])
        value = self.assign(self.program.fresh(), self.expression(first))
        goes_on = value if isinstance(node.op, ast.And) else ast.UnaryOp(ast.Not(), value)
        return self.chosen(goes_on, rest, None, value.id)

    def value_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.expression(node.test)
        if not self.waits(node.body) and not self.waits(node.orelse):
            return ast.IfExp(test, node.body, node.orelse)
        return self.chosen(test, node.body, node.orelse, self.program.fresh())


def _joined(operation: ast.boolop, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.BoolOp(operation, values)

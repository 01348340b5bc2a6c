"""The full check: a read of an element becomes a call of races.read, and a call of races.write precedes each store."""

from __future__ import annotations

import ast
from typing import Any

from numba import cuda
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

from .statements import StatementPass, load
from .targets import is_collective, waits_for


class Checks(StatementPass):
    def do_Assign(self, node: ast.Assign) -> None:
        value = self.expression(node.value)
        (target,) = node.targets
        if any(isinstance(n, ast.Subscript) for n in ast.walk(target)):
            value = self.kept(value)  # its reads come before the check of the store
        self.emit(ast.Assign([self.target(target)], value))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        target: Any = node.target
        if isinstance(target, ast.Name):
            self.emit(ast.AugAssign(target, node.op, self.expression(node.value)))
            return
        array = self.assign(self.program.fresh("array"), self.expression(target.value))
        index = self.assign(self.program.fresh("index"), self.expression(target.slice))
        old = self.assign(self.program.fresh("old"), self.read(array, index))
        value = self.expression(node.value)
        self.emit(ast.Assign([self.target(ast.Subscript(array, index, ast.Store()))], ast.BinOp(old, node.op, value)))

    def target(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self.target(e) for e in node.elts], ast.Store())
        if not isinstance(node, ast.Subscript):
            return node
        array, index = self.expression(node.value), self.expression(node.slice)
        if not isinstance(index, ast.Slice):
            array, index = self.kept(array), self.kept(index)
            self.call("__write", load("__env"), array, index)
        return ast.Subscript(array, index, ast.Store())

    def emit(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign) and self.may_be_shared(statement.value):
            stored = [n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            self.program.shared_names.update(stored)
        super().emit(statement)

    def may_be_shared(self, value: ast.expr) -> bool:
        names = [n for n in ast.walk(value) if isinstance(n, ast.Name)]
        return any(n.id in self.program.shared_names or self.program.value(n) is cuda.shared.array for n in names)

    def expression(self, node: ast.expr) -> ast.expr:
        made = self.rebuilt(node)
        if isinstance(made, ast.Subscript):
            return self.read(made.value, made.slice)
        if isinstance(made, ast.Call):
            self.describe(made)
        return made

    def read(self, array: ast.expr, index: ast.expr) -> ast.expr:
        is_shape = isinstance(array, ast.Attribute) and array.attr in ("shape", "strides")
        if is_shape or isinstance(index, ast.Slice):
            return ast.Subscript(array, index, ast.Load())
        return ast.Call(load("__read"), [load("__env"), array, index], [])

    def describe(self, node: ast.Call) -> None:
        """Before an intrinsic's call, what it does to the array that is its first argument.

        An intrinsic says so in its attribute ``memory_access``: ("read" or "write", number of elements), the first element
        being ``array[second argument]``. Shared memory given to any other intrinsic is no longer followed.
        """
        target = self.program.value(node.func)
        if not isinstance(target, _Intrinsic | Dispatcher) or is_collective(target) or waits_for(target):
            return
        values = node.args = [self.kept(value) for value in node.args]
        described = getattr(target, "memory_access", None)
        if described is not None:
            kind, count = described
            counted = [ast.Constant(int(count)), ast.Constant(kind == "write")]
            self.call("__span", load("__env"), values[0], values[1], *counted)
            return
        for value in values:
            if isinstance(value, ast.Name) and value.id in self.program.shared_names:
                self.call("__escape", load("__env"), value)

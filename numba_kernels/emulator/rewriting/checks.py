"""The full check: an index is checked where it is used, so that an error can say which it was."""

from __future__ import annotations

import ast
import copy

from .statements import StatementPass, load


class Checks(StatementPass):
    def do_AugAssign(self, node: ast.AugAssign) -> None:
        self.emit(ast.AugAssign(self.expression(node.target), node.op, self.expression(node.value)))  # type: ignore[arg-type]

    def expression(self, node: ast.expr) -> ast.expr:
        made = self.rebuilt(node)
        if isinstance(made, ast.Call):
            self.describe(made)
        if not isinstance(made, ast.Subscript) or not is_plain(made.value) or not is_index(made.slice):
            return made
        position = ast.Call(load("__index"), [load("__env"), as_loaded(made.value), made.slice], [])
        return ast.Subscript(made.value, position, made.ctx)

    def describe(self, node: ast.Call) -> None:
        """Before an intrinsic's call, a check of the elements that its attribute ``memory_access`` says it touches: ("read" or
        "write", how many), the first one being ``array[second argument]`` of the array that is its first."""
        described = getattr(self.program.value(node.func), "memory_access", None)
        if described is not None:
            node.args = [self.kept(value) for value in node.args]
            self.call("__span", load("__env"), node.args[0], node.args[1], ast.Constant(int(described[1])))


def as_loaded(node: ast.expr) -> ast.expr:
    return copy.deepcopy(node)


def is_plain(node: ast.expr) -> bool:
    """Whether an expression may be written twice: a name, its attributes and constant elements; not a shape."""
    if isinstance(node, ast.Attribute):
        return node.attr not in ("shape", "strides") and is_plain(node.value)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and is_plain(node.value)
    return isinstance(node, ast.Name)


def is_index(node: ast.expr) -> bool:
    """Whether an index may be one of integers, not all constant: Numba wants constants as they are, for tuples and fields."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return not any(isinstance(p, ast.Slice) for p in parts) and not isinstance(node, ast.Constant)

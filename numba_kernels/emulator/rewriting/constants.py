"""Constants: expressions that are known before the kernel runs."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types as numba_types

from .program import UNKNOWN
from .targets import is_stub


def constant(value_of: Callable[[ast.AST], Any], node: ast.AST) -> Any:
    """The value of an expression of constants, or UNKNOWN; ``value_of`` tells what a name or dotted name stands for."""
    folder = _Constants(value_of)
    try:
        made = ast.Expression(folder.visit(copy.deepcopy(node)))
        return eval(compile(ast.fix_missing_locations(made), "<constant>", "eval"), {"__builtins__": {}}, folder.values)
    except Exception:
        return UNKNOWN


class _Constants(ast.NodeTransformer):
    """Replaces each name of an expression by a variable that holds its constant; any other thing is an error."""

    ALLOWED = (
        ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Tuple, ast.IfExp, ast.Subscript,
        ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
    )  # fmt: skip
    CONSTANTS = (int, float, complex, str, bytes, type(None), tuple, np.generic, np.dtype, numba_types.Type, type)
    FUNCTIONS = (int, max, min, abs, len, bool)

    def __init__(self, value_of: Callable[[ast.AST], Any]) -> None:
        self.value_of = value_of
        self.values: dict[str, Any] = {}

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name | ast.Attribute):
            value = self.value_of(node)
            if value is UNKNOWN or not isinstance(value, self.CONSTANTS) or is_stub(value):
                raise ValueError
        elif isinstance(node, ast.Call) and self.value_of(node.func) in self.FUNCTIONS:
            value = self.value_of(node.func)(*(constant(self.value_of, a) for a in node.args))
        elif isinstance(node, self.ALLOWED):
            return self.generic_visit(node)
        else:
            raise ValueError
        name = f"v{len(self.values)}"
        self.values[name] = value
        return ast.Name(name, ast.Load())

"""Branches that never run, because their conditions are constants."""

from __future__ import annotations

import ast
import copy
from typing import Any

from .constants import constant
from .program import UNKNOWN
from .scope import Scope


class Fold(ast.NodeTransformer):
    """Of an ``if``, a conditional expression, an ``and`` or an ``or`` whose outcome is known, only what runs stays."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The folded form of a copy of some statements; may be empty."""
        made: list[ast.stmt] = []
        for statement in copy.deepcopy(body):
            found = self.visit(statement)
            made += found if isinstance(found, list) else [found]
        return made

    def expression(self, node: ast.expr) -> ast.expr:
        return self.visit(copy.deepcopy(node))

    def visit_If(self, node: ast.If) -> Any:
        node.test = self.visit(node.test)
        known = constant(self.scope.value, node.test)
        if known is not UNKNOWN:
            return self.statements(node.body if known else node.orelse)
        node.body, node.orelse = self.statements(node.body), self.statements(node.orelse)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        known = constant(self.scope.value, node.test)
        if known is not UNKNOWN:
            return self.visit(node.body if known else node.orelse)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        decides = isinstance(node.op, ast.Or)  # the value that settles the operation
        kept: list[ast.expr] = []
        for operand in node.values:
            known = constant(self.scope.value, operand)
            if known is UNKNOWN:
                kept.append(self.visit(operand))
            elif bool(known) is decides:
                kept.append(ast.copy_location(ast.Constant(known), operand))
                break
        if len(kept) > 1:
            node.values = kept
            return node
        return kept[0] if kept else ast.copy_location(ast.Constant(not decides), node)
